// Largest magnitudes: ops that state them of their outputs, so that quantizing these need not read them first, and histories of
// those of earlier steps, from which delayed scales come.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

/// "<op>_amax" is op with attribute "amax_of" (bit k: of output k) and one more output for each, amax f32[], behind its own.
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

/// Inputs: amaxes f32[ranks, n], then histories f32[1 + length]. The k-th history takes the largest of columns
/// [first + k·columns, first + (k + 1)·columns).
class RecordAmaxes final : public NamedOp {
 public:
  RecordAmaxes() : NamedOp("record_amaxes") {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& amaxes = present(in, 0);
    require(amaxes.dtype == DType::f32 && amaxes.shape.rank() == 2, "amaxes must be f32[ranks, n]");
    require(in.size() > 1, "there are no histories");
    const std::int64_t first = attributes.integer("first"), columns = attributes.integer("columns");
    const auto histories = static_cast<std::int64_t>(in.size()) - 1;
    require(first >= 0 && columns >= 1 && first + columns * histories <= amaxes.shape[1], "amaxes has too few columns");
    Types made;
    for (std::size_t i = 1; i < in.size(); ++i) {
      const TensorType& history = present(in, i);
      require(history.dtype == DType::f32 && history.shape.rank() == 1 && history.shape[0] >= 2,
              "a history must be f32[1 + length]");
      made.emplace_back(history);
    }
    return made;
  }
  void shard(AxisSharding& axis, const Types& in, const Attributes& /*attributes*/) const override {
    axis.inputs.assign(in.size(), Placement::replicate());
    axis.outputs.assign(in.size() - 1, Placement::replicate());
  }
  int updates_in_place(int output) const noexcept override { return output + 1; }
};

}  // namespace

void register_amax(OpRegistry& registry) {
  registry.add(std::make_unique<RecordAmaxes>());
  for (const char* op :
       {"rms_norm", "swiglu", "swiglu_grad", "moe_swiglu", "moe_swiglu_grad", "moe_dispatch", "moe_combine_grad"})
    registry.add(std::make_unique<WithAmax>(registry.get(op)));
}

}  // namespace consist::ops
