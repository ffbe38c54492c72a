// decode_weights: weights in a dtype that products read, from blocks of codes (consist/weight_blocks.h).
#include "consist/weight_blocks.h"
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

class DecodeWeights final : public NamedOp {
 public:
  DecodeWeights() : NamedOp("decode_weights") {}
  bool remade_in_backward() const noexcept override { return true; }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& stored = present(in, 0);
    const DType dtype = dtype_attribute(attributes);
    require(stored.dtype == DType::u8 && stored.shape.rank() >= 1, "the input must be u8 with a dimension");
    require(dtype == DType::f32 || dtype == DType::bf16, "attribute 'dtype' must be f32 or bf16");
    return {TensorType{dtype, weight_blocks(attributes).weights(stored.shape)}};
  }
  /// A flat slice may begin within a block: it is gathered first.
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    require(!axis.inputs[0].is_partial(), "codes cannot be summands");
    if (axis.inputs[0].is_flat()) axis.inputs[0] = Placement::replicate();
    axis.outputs = {axis.inputs[0]};
  }
  void check_places(const Program& program, const Instruction& i) const override {
    const std::int64_t bytes = program.local(i.inputs[0]).last();
    if (bytes % weight_blocks(i.attributes).bytes() != 0)
      fail("a rank holds " + std::to_string(bytes) + " bytes of each row of '" + program[i.inputs[0]].name +
           "', which are no whole blocks");
  }
};

}  // namespace

void register_decode_weights(OpRegistry& registry) {
  registry.add(std::make_unique<DecodeWeights>());
}

}  // namespace consist::ops
