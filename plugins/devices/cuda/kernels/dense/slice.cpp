// slice: the rank's part of a tensor that it holds whole along an axis.
#include "plugins/devices/common/slice.h"

#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {
namespace {

class Slice final : public Kernel {
 public:
  explicit Slice(const KernelRequest& r) : runs_(r) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    if (runs_.bytes == 0 || runs_.count == 0) return;
    const auto bytes = static_cast<std::size_t>(runs_.bytes);
    const auto pitch = runs_.count == 1 ? bytes : static_cast<std::size_t>(runs_.stride);
    cuda::check(cudaMemcpy2DAsync(out[0].data, bytes, in[0].as<char>() + runs_.offset, pitch, bytes,
                                  static_cast<std::size_t>(runs_.count), cudaMemcpyDeviceToDevice, stream_of(queue)),
                "copy a slice");
  }

 private:
  kernels::SliceRuns runs_;
};

Made make_slice(const KernelRequest& r, const KernelSettings& /*s*/) {
  return std::make_unique<Slice>(r);
}

}  // namespace

CONSIST_KERNEL(slice, make_slice);

}  // namespace consist::cuda
