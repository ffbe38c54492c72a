// record_amaxes.
#include <algorithm>

#include "plugins/devices/cpu/kernels/common/kernels.h"

namespace consist::cpu {
namespace {

class RecordAmaxes final : public Kernel {
 public:
  explicit RecordAmaxes(const KernelRequest& r)
      : first_(r.attributes.integer("first")), columns_(r.attributes.integer("columns")) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const std::int64_t ranks = in[0].shape[0], n = in[0].shape[1];
    for (std::size_t k = 0; k < out.size(); ++k) {
      const float* amaxes = in[0].as<float>() + first_ + static_cast<std::int64_t>(k) * columns_;
      float largest = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        for (std::int64_t i = 0; i < columns_; ++i) largest = std::max(largest, amaxes[rank * n + i]);
      }
      float *history = out[k].as<float>(), *end = history + out[k].shape[0];
      std::copy_backward(history + 1, end - 1, end);
      history[1] = largest;
      history[0] = *std::max_element(history + 1, end);
    }
  }

 private:
  std::int64_t first_, columns_;
};

Made make_record_amaxes(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<RecordAmaxes>(r);
}

}  // namespace

CONSIST_KERNEL(record_amaxes, make_record_amaxes);

}  // namespace consist::cpu
