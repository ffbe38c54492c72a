// Largest magnitudes of earlier steps, from which delayed scales come: the values that ranks found in a step, and their place in
// the histories.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

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

void register_amax_history(OpRegistry& registry) {
  registry.add(std::make_unique<RecordAmaxes>());
}

}  // namespace consist::ops
