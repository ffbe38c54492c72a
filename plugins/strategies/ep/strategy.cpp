// Expert parallelism (Shazeer et al., 2017; Lepikhin et al., 2021): ranks share the experts of a mixture. Each rank gathers the
// tokens of its group, or is sent those that have chosen its experts, works on the rows of these, and the sums go back to the
// tokens' ranks. Communication follows from the placement rules of the ops; this file sets the experts of each rank and the
// capacity.
#include "consist/strategy.h"

#include <string>

#include "consist/error.h"
#include "consist/pass.h"
#include "consist/plugin.h"
#include "plugins/strategies/common/experts.h"
#include "plugins/strategies/common/held_inputs.h"
#include "plugins/strategies/common/turns.h"
#include "plugins/strategies/common/weight_gradients.h"
#include "plugins/strategies/ep/exchange.h"
#include "plugins/strategies/ep/overlap.h"

namespace {

using namespace consist;

class ExpertParallel final : public ParallelStrategy {
 public:
  explicit ExpertParallel(const Options& options)
      : capacity_(options.real("capacity")),
        exchanges_(options.text("dispatch") == "all-to-all"),
        parts_(options.integer("parts")),
        delay_weight_gradients_(options.flag("delay-weight-gradients")) {
    if (parts_ < 0 || parts_ > most_parts) {
      throw UsageError("--ep.parts is " + std::to_string(parts_) + "; it must be 0 (automatic) to " + std::to_string(most_parts));
    }
  }

  AxisRequest axis() const override {
    return {.name = "expert",
            .splits_batch = true,
            .distance = 0,
            .shares_parameters = true,
            .on_one_rank = strategies::on_one_rank(capacity_)};
  }

  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
    }
    const bool any = strategies::divide_experts(forward, axes, capacity_, "ep");
    if (axes.empty()) return;
    if (!any) throw UsageError("ep: the model has no experts that ranks could share; leave ep out of --strategy");
    if (exchanges_) expert_parallel::exchange_tokens(forward, axes, capacity_);
  }

  /// Cuts the batch before differentiation, so that backward is in slices as well; slices alternate before anything
  /// else is scheduled.
  void add_passes(PassList& passes, AxisSet axes) const override {
    if (axes.empty()) return strategies::add_pass_that_forgets_room(passes, "ep");
    if (parts_ == 1) return;
    passes.add(PassPoint::forward, {"ep.parts", [parts = static_cast<int>(parts_), axes](Program& forward, PassContext& context) {
                                      if (!context.evaluation)
                                        expert_parallel::cut_batch(forward, axes, parts, context.dtypes.gradient);
                                    }});
    passes.add(PassPoint::before_schedule,
               {"ep.turns", [](Program& step, PassContext& /*context*/) { strategies::take_turns(step); }});
  }

  void schedule(Program& step, AxisSet axes) const override {
    if (axes.empty()) return;
    if (delay_weight_gradients_) strategies::delay_weight_gradients(step, axes.first());
    strategies::hold_inputs(step, axes.first(), strategies::Held::read_beside);
  }

 private:
  static constexpr std::int64_t most_parts = 16;

  double capacity_;
  bool exchanges_;
  std::int64_t parts_;
  bool delay_weight_gradients_;
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, ExpertParallel, "ep", "1.0.0",
               "expert parallel: ranks share the experts of a mixture; tokens are gathered, or sent to their experts' ranks");
CONSIST_PLUGIN_OPTIONS(
    consist::strategies::capacity_option_of_all,
    {"dispatch", consist::OptionKind::choice, "gather",
     "gather: tokens of the group are brought to every rank of it; all-to-all: each goes to the ranks that have one of its "
     "experts",
     "gather|all-to-all", "", "gather|all-to-all"},
    {"parts", consist::OptionKind::integer, "0",
     "the batch is cut into so many parts that take turns: one computes while tokens of another travel; 0: two where the cost "
     "model says that it pays; 1: nothing is cut",
     "", "", "0|1|2"},
    {"delay-weight-gradients", consist::OptionKind::flag, "true",
     "backward computes gradients of weights while tokens and their gradients travel", "", "", "true|false"});
