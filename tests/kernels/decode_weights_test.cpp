// decode_weights: weights from blocks of codes.
#include "consist/weight_blocks.h"
#include "tests/kernels/device_kernel.h"

namespace consist {
namespace {

using test::DeviceKernel;
using test::expect_close;
using test::Value;

Value bytes_of(const WeightBlocks& blocks, const Value& weights) {
  const std::vector<float> values(weights.data.begin(), weights.data.end());
  Value stored = reference::zeros(DType::u8, blocks.stored(weights.shape));
  std::vector<std::uint8_t> bytes(stored.data.size());
  encode(blocks, values, bytes);
  stored.data.assign(bytes.begin(), bytes.end());
  return stored;
}

// Lengths that are moved in packs, and such that are not; rows of one block, of several, and one of each code.
TEST_P(DeviceKernel, DecodeWeights) {
  for (const WeightBlocks::Code code : {WeightBlocks::Code::nf4, WeightBlocks::Code::e4m3}) {
    for (const std::int64_t length : {64, 8, 128, 7, 1, 12}) {
      const WeightBlocks blocks{code, length};
      for (const Shape& shape : {Shape{5, 3 * length}, {2, 3, length}, {1, 40 * length}}) {
        Value weights = random(shape, 0.02);
        for (std::int64_t i = 0; i < length; ++i) weights.at(i) = 0;  // a block without a scale
        const Value stored = bytes_of(blocks, weights);
        const Value made =
            *run("decode_weights", {stored}, {{"blocks", text_of(blocks)}, {"dtype", std::string(name_of(dtype()))}})[0];
        EXPECT_EQ(made.shape, shape);
        expect_close(made, reference::decode_weights(stored, blocks), narrow() ? 0x1p-8 : 1e-7, text_of(blocks).c_str());
      }
    }
  }
}

}  // namespace
}  // namespace consist
