// Context parallelism: every rank of the axis has a slice of each sequence. Attention, which alone looks at other tokens, works
// on heads of unsharded sequences (Jacobs et al., 2023, "DeepSpeed Ulysses"), on gathered keys and values, with the sequence in
// zigzag order so that all ranks have equal work (Grattafiori et al., 2024), or on those that are sent around the ring of ranks.
#include "consist/strategy.h"

#include <optional>
#include <string>

#include "consist/op.h"
#include "consist/pass.h"
#include "consist/plugin.h"
#include "plugins/strategies/common/experts.h"
#include "plugins/strategies/common/gather_again.h"
#include "plugins/strategies/common/held_inputs.h"
#include "plugins/strategies/common/weight_gradients.h"
#include "plugins/strategies/cp/messages.h"
#include "plugins/strategies/cp/overlap.h"
#include "plugins/strategies/cp/partition.h"
#include "plugins/strategies/cp/ring.h"
#include "plugins/strategies/cp/token_order.h"

namespace {

using namespace consist;
using context_parallel::Attention;

Attention attention_of(const std::string& name) {
  if (name == "ulysses") return Attention::ulysses;
  return name == "ring" ? Attention::ring : Attention::gather;
}

class ContextParallel final : public ParallelStrategy {
 public:
  explicit ContextParallel(const Options& options)
      : attention_(attention_of(options.text("attention"))),
        gather_again_(options.flag("gather-again")),
        queries_beside_gathers_(options.flag("queries-beside-gathers")),
        delay_weight_gradients_(options.flag("delay-weight-gradients")),
        divides_experts_(options.text("experts") == "divided"),
        capacity_(divides_experts_ ? strategies::capacity_of(options) : std::nullopt) {}

  AxisRequest axis() const override {
    return {.name = "context", .distance = 0, .shares_parameters = true, .on_one_rank = strategies::on_one_rank(capacity_)};
  }

  void partition(Program& forward, AxisSet axes) const override {
    if (divides_experts_) strategies::divide_experts(forward, axes, capacity_, "cp", ", or --cp.experts whole");
    if (axes.empty()) return;
    context_parallel::partition(forward, axes.first(), attention_);
  }

  /// Checks the order of tokens after the model and after the precisions. A ring is inserted after differentiation and
  /// recomputation, which treat attention as one op, and before instructions are scheduled.
  void add_passes(PassList& passes, AxisSet axes) const override {
    if (axes.empty()) return strategies::add_pass_that_forgets_room(passes, "cp");
    for (const PassPoint point : {PassPoint::forward, PassPoint::micro_batch}) {
      if (attention_ == Attention::ulysses) break;
      passes.add(point, {"cp.token_order",
                         [](Program& program, PassContext& /*context*/) { context_parallel::check_token_order(program); }});
    }
    if (attention_ != Attention::ring) return;
    passes.add(PassPoint::micro_batch, {"cp.ring", [axis = axes.first()](Program& program, PassContext& /*context*/) {
                                          context_parallel::attend_around_ring(program, axis);
                                        }});
  }

  void schedule(Program& step, AxisSet axes) const override {
    if (axes.empty()) return;
    const int axis = axes.first();
    context_parallel::join_messages(step, axis);
    // Before keys and values are gathered again, which the rest of the layer overlaps: these are for messages after attention.
    if (delay_weight_gradients_) strategies::delay_weight_gradients(step, axis);
    if (attention_ == Attention::gather && gather_again_) strategies::gather_again(step, axis);
    if (attention_ == Attention::gather && queries_beside_gathers_) context_parallel::compute_beside_gathers(step, axis);
    strategies::hold_inputs(step, axis);
    for (Instruction& i : step.instructions) {
      if (context_parallel::moves_activations(step, i, axis)) i.tag.inserted_by = "cp";
    }
  }

 private:
  Attention attention_;
  bool gather_again_, queries_beside_gathers_, delay_weight_gradients_, divides_experts_;
  std::optional<double> capacity_;  // none: the usual one, or ep's
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, ContextParallel, "cp", "1.0.0",
               "context parallel (CP): each sequence divided over ranks, attention by heads (Ulysses), on gathered keys and values or "
               "around a ring");
CONSIST_PLUGIN_OPTIONS(
    {"attention", consist::OptionKind::choice, "gather",
     "gather: keys and values of all tokens are brought to every rank; ring: they travel from rank to rank, and each "
     "attends to a part at a time; ulysses: each rank attends in some of the heads over the whole sequence",
     "gather|ring|ulysses", "", "gather|ring|ulysses"},
    {"gather-again", consist::OptionKind::flag, "true",
     "backward gathers keys and values again, beside the rest of its layer, instead of keeping those of all tokens", "",
     "attention=gather", "true|false"},
    {"queries-beside-gathers", consist::OptionKind::flag, "true",
     "queries are computed while keys and values travel, in a product of their own; false: in one with theirs", "",
     "attention=gather", "true|false"},
    {"delay-weight-gradients", consist::OptionKind::flag, "true",
     "backward computes gradients of weights while gradients of keys and values travel", "", "", "true|false"},
    {"experts", consist::OptionKind::choice, "whole",
     "whole: each rank has all experts, or those of its part beside ep; divided: ranks of the axis share the experts, as "
     "those of ep do and together with them",
     "whole|divided", "", "whole|divided"},
    consist::strategies::capacity_option);
