// Data parallelism that keeps a state of its own: the sum of the gradients of the last norm's weight over all steps, or each
// rank's summands of it.
#include <string>

#include "consist/builder.h"
#include "consist/edit.h"
#include "consist/plugin.h"
#include "consist/strategy.h"

namespace {

using namespace consist;

class Stateful final : public ParallelStrategy {
 public:
  explicit Stateful(const Options& options) : kind_(options.text("kind")), name_(options.text("name")) {}
  AxisRequest axis() const override { return {.name = "data", .takes_rest = true, .splits_batch = true}; }
  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
    }
  }
  void schedule(Program& step, AxisSet axes) const override {
    if (kind_ == "none") return;
    for (Parameter& parameter : step.parameters) {
      if (parameter.name != "model.norm.weight") continue;
      const TensorId gradient = parameter.gradient;
      Inserter inserter(step);
      inserter.after(last_writers(step)[static_cast<std::size_t>(gradient)], [&](Builder& builder) {
        builder.tag.inserted_by = "stateful";
        builder.tag.phase = Phase::backward;
        const bool whole = kind_ != "per_rank" && kind_ != "partial";
        const TensorId summand = whole ? builder.all_reduce({gradient}, axes)[0] : gradient;
        const StateKind kind = kind_ == "per_rank"      ? StateKind::per_rank
                               : kind_ == "discardable" ? StateKind::discardable
                                                        : StateKind::logical;
        const TensorId sum = builder.state(name_, step[summand].dtype, step[summand].shape, step[summand].placements, kind);
        builder.emit_one("add", {sum, summand}, {}, name_);
        if (whole) parameter.gradient = summand;
      });
      inserter.apply();
    }
  }

 private:
  std::string kind_, name_;
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, Stateful, "stateful", "1.0.0", "data parallel with a state of its own");
CONSIST_PLUGIN_OPTIONS({"kind", consist::OptionKind::choice, "logical", "what the state is",
                        "logical|per_rank|discardable|partial|none"},
                       {"name", consist::OptionKind::text, "norm.gradient_sum", "its name"});
