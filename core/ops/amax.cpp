// Ops that also state the largest magnitude of their outputs, so that quantizing these need not read them first. "<op>_amax" is
// op with attribute "amax_of" (bit k: of output k) and one more output for each, amax f32[], behind its own.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

class WithAmax final : public NamedOp {
 public:
  explicit WithAmax(const Op& base) : NamedOp(std::string(base.name()) + "_amax"), base_(base) {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    Types types = base_.infer(in, attributes);
    const std::int64_t of = attributes.integer("amax_of");
    const std::size_t own = types.size();
    require(of > 0 && of < std::int64_t{1} << own, "attribute 'amax_of' names no output");
    for (std::size_t k = 0; k < own; ++k) {
      if ((of >> k & 1) == 0) continue;
      require(types[k].has_value(), "attribute 'amax_of' names an output that is not made");
      types.push_back(TensorType{DType::f32, {}});
    }
    return types;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    base_.shard(axis, in, attributes);
    const std::int64_t of = attributes.integer("amax_of");
    for (std::size_t k = 0, own = axis.outputs.size(); k < own; ++k) {
      if ((of >> k & 1) == 0) continue;
      require(!axis.outputs[k].is_partial(), "a summand has no largest magnitude of its own");
      axis.outputs.push_back(Placement::replicate());  // each rank's own
    }
  }
  int updates_in_place(int output) const noexcept override { return base_.updates_in_place(output); }
  bool dispatches_tokens() const noexcept override { return base_.dispatches_tokens(); }

 private:
  const Op& base_;
};

}  // namespace

void register_with_amax(OpRegistry& registry) {
  for (const char* op :
       {"rms_norm", "swiglu", "swiglu_grad", "moe_swiglu", "moe_swiglu_grad", "moe_dispatch", "moe_combine_grad"})
    registry.add(std::make_unique<WithAmax>(registry.get(op)));
}

}  // namespace consist::ops
