// decode_weights: weights from blocks of codes.
#include <cstring>

#include "consist/weight_blocks.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

/// A block whose codes lie behind its scale.
template <WeightBlocks::Code code, typename T>
void decode_block(const std::uint8_t* block, std::int64_t length, T* weights) {
  float scale;
  std::memcpy(&scale, block, sizeof scale);
  const std::uint8_t* const codes = block + weight_scale_bytes;
  for (std::int64_t i = 0; i < length; ++i) {
    if constexpr (code == WeightBlocks::Code::nf4)
      store(weights[i], nf4_values[codes[i / 2] >> (i % 2 * 4) & 15U] * scale);
    else
      store(weights[i], from_float8<e4m3_format>(codes[i]) * scale);
  }
}

template <typename T>
class DecodeWeights final : public Kernel {
 public:
  explicit DecodeWeights(const WeightBlocks& blocks) : blocks_(blocks) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto decode = blocks_.code == WeightBlocks::Code::nf4 ? decode_block<WeightBlocks::Code::nf4, T>
                                                                : decode_block<WeightBlocks::Code::e4m3, T>;
    const std::uint8_t* const bytes = in[0].as<std::uint8_t>();
    T* const weights = out[0].as<T>();
    parallel_for(out[0].shape.elements() / blocks_.length, [=, length = blocks_.length, size = blocks_.bytes()](std::int64_t b) {
      decode(bytes + b * size, length, weights + b * length);
    });
  }

 private:
  WeightBlocks blocks_;
};

Made make_decode_weights(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<DecodeWeights>(r.outputs[0].dtype, weight_blocks(r.attributes));
}

}  // namespace

CONSIST_KERNEL(decode_weights, make_decode_weights);

}  // namespace consist::cpu
