// Data parallelism whose gradients are twice the sum: the most frequent mistake of such strategies is a factor.
#include <algorithm>
#include <string>

#include "consist/builder.h"
#include "consist/edit.h"
#include "consist/plugin.h"
#include "consist/strategy.h"

namespace {

using namespace consist;

class Doubled final : public ParallelStrategy {
 public:
  explicit Doubled(const Options& /*options*/) {}
  AxisRequest axis() const override { return {.name = "data", .takes_rest = true, .splits_batch = true}; }
  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
    }
  }
  void schedule(Program& step, AxisSet axes) const override {
    const std::vector<InstructionId> writers = last_writers(step);
    Inserter inserter(step);
    for (Parameter& parameter : step.parameters) {
      const TensorId gradient = parameter.gradient;
      inserter.after(writers[static_cast<std::size_t>(gradient)], [&](Builder& builder) {
        builder.tag.inserted_by = "doubled";
        const TensorId sum = builder.all_reduce({gradient}, axes)[0];
        const TensorId copy = builder.emit_one("cast", {sum}, {{"dtype", std::string(name_of(step[sum].dtype))}}, "copy");
        parameter.gradient = builder.emit_one("add", {sum, copy}, {}, "doubled");
      });
    }
    inserter.apply();
  }
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, Doubled, "doubled", "1.0.0", "data parallel with twice the gradients");
CONSIST_PLUGIN_NO_OPTIONS();
