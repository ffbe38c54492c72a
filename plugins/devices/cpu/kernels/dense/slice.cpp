// slice: the rank's part of a tensor that it holds whole along an axis.
#include "plugins/devices/common/slice.h"

#include <cstring>

#include "plugins/devices/cpu/kernels/common/kernels.h"

namespace consist::cpu {
namespace {

class Slice final : public Kernel {
 public:
  explicit Slice(const KernelRequest& r) : runs_(r) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    if (runs_.bytes == 0) return;
    for (std::int64_t i = 0; i < runs_.count; ++i) {
      std::memcpy(out[0].as<char>() + i * runs_.bytes, in[0].as<char>() + runs_.offset + i * runs_.stride,
                  static_cast<std::size_t>(runs_.bytes));
    }
  }

 private:
  kernels::SliceRuns runs_;
};

Made make_slice(const KernelRequest& r, const KernelSettings& /*s*/) {
  return std::make_unique<Slice>(r);
}

}  // namespace

CONSIST_KERNEL(slice, make_slice);

}  // namespace consist::cpu
