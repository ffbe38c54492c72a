// Tensor parallelism with sequence parallelism: every rank of the axis has its slice of every matrix, and of the sequence in
// between (Shoeybi et al., 2019, "Megatron-LM"; Korthikanti et al., 2022, "Reducing Activation Recomputation in Large Transformer
// Models").
#include "consist/strategy.h"

#include <optional>

#include "consist/edit.h"
#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/strategies/common/experts.h"
#include "plugins/strategies/common/gather_again.h"
#include "plugins/strategies/common/held_inputs.h"
#include "plugins/strategies/common/weight_gradients.h"
#include "plugins/strategies/tp-sp/overlap.h"
#include "plugins/strategies/tp-sp/partition.h"
#include "plugins/strategies/tp-sp/token_messages.h"

namespace {

using namespace consist;

constexpr const char* who = "tp-sp";

class TensorParallel final : public ParallelStrategy {
 public:
  explicit TensorParallel(const Options& options)
      : sequence_parallel_(options.flag("sequence-parallel")),
        delay_weight_gradients_(options.flag("delay-weight-gradients")),
        gather_again_(options.flag("gather-again")),
        overlap_parts_(options.integer("overlap-parts")),
        logits_bytes_(options.integer("logits-bytes")),
        divides_experts_(options.text("experts") == "divided"),
        capacity_(divides_experts_ ? strategies::capacity_of(options) : std::nullopt) {
    if (logits_bytes_ < 1)
      throw UsageError("--tp-sp.logits-bytes is " + std::to_string(logits_bytes_) + "; it must be at least 1");
    if (overlap_parts_ < 0 || overlap_parts_ > most_parts) {
      throw UsageError("--tp-sp.overlap-parts is " + std::to_string(overlap_parts_) + "; it must be 0 (automatic) to " +
                       std::to_string(most_parts));
    }
    if (overlap_parts_ > 1 && !sequence_parallel_) {
      throw UsageError("--tp-sp.overlap-parts=" + std::to_string(overlap_parts_) +
                       " needs sequence parallelism; leave out --tp-sp.sequence-parallel=false");
    }
  }

  AxisRequest axis() const override {
    return {.name = "tensor", .distance = 0, .on_one_rank = strategies::on_one_rank(capacity_)};
  }

  void partition(Program& forward, AxisSet axes) const override {
    if (divides_experts_) {
      strategies::divide_experts(forward, axes, capacity_, who, ", or --tp-sp.experts whole");
    }
    if (axes.empty()) return;
    tensor_parallel::partition(forward, {axes.first(), sequence_parallel_, logits_bytes_});
  }

  void add_passes(PassList& passes, AxisSet axes) const override {
    if (axes.empty()) strategies::add_pass_that_forgets_room(passes, who);
  }

  void schedule(Program& step, AxisSet axes) const override {
    if (axes.empty()) return;
    const int axis = axes.first();
    if (gather_again_) strategies::gather_again(step, axis);
    if (sequence_parallel_) tensor_parallel::overlap_forward(step, {axis, static_cast<int>(overlap_parts_)});
    tensor_parallel::move_tokens_as_one_message(step, axis);
    if (delay_weight_gradients_) strategies::delay_weight_gradients(step, axis);
    strategies::hold_inputs(step, axis);
    sum_gradients(step, axis);
    for (Instruction& i : step.instructions) {
      if (i.op->is_collective() && i.queue.axes() == axis) i.tag.inserted_by = who;
    }
  }

 private:
  /// Reduces gradients of replicated weights (norms, shared key/value heads), of which each rank has a summand: all in one
  /// instruction at the end, since they are small.
  static void sum_gradients(Program& step, int axis) {
    std::vector<TensorId> gradients;
    std::vector<Parameter*> parameters;
    for (Parameter& parameter : step.parameters) {
      if (parameter.gradient == no_tensor || !step[parameter.gradient].placements[axis].is_partial()) continue;
      gradients.push_back(parameter.gradient);
      parameters.push_back(&parameter);
    }
    if (gradients.empty()) return;
    Builder builder(step);
    builder.tag = {Phase::backward, -1, static_cast<std::int16_t>(step.micro_batches - 1), who};
    const std::vector<TensorId> reduced = builder.all_reduce(gradients, axis);
    for (std::size_t i = 0; i < reduced.size(); ++i) parameters[i]->gradient = reduced[i];
  }

  static constexpr std::int64_t most_parts = 64;

  bool sequence_parallel_, delay_weight_gradients_, gather_again_;
  std::int64_t overlap_parts_, logits_bytes_;
  bool divides_experts_;
  std::optional<double> capacity_;  // none: the usual one, or ep's
};

}  // namespace

CONSIST_PLUGIN(
    strategy, consist::ParallelStrategy, TensorParallel, "tp-sp", "1.0.0",
    "tensor parallel (TP, SP): matrices, heads and vocabulary split over ranks, norms and residuals along the sequence");
CONSIST_PLUGIN_OPTIONS({"sequence-parallel", consist::OptionKind::flag, "true",
                        "norms and residuals split along the sequence; false: plain tensor parallelism, they are on every rank"},
                       {"delay-weight-gradients", consist::OptionKind::flag, "true",
                        "backward computes gradients of weights while gradients of activations travel", "", "", "true|false"},
                       {"gather-again", consist::OptionKind::flag, "false",
                        "backward gathers the outputs of norms again instead of keeping them whole: less memory, more bytes", "",
                        "sequence-parallel=true", "true|false"},
                       {"overlap-parts", consist::OptionKind::integer, "0",
                        "forward is cut along tokens into so many parts, whose collectives and products overlap; 0: halves of "
                        "the batch where each has 4,096 tokens or more; 1: nothing is cut",
                        "", "", "0|1|2|4"},
                       {"logits-bytes", consist::OptionKind::bytes, "512Mi", "most bytes of logits that a rank makes at once"},
                       {"experts", consist::OptionKind::choice, "divided",
                        "divided: ranks share the experts of mixtures and gather tokens for them; whole: each rank has all "
                        "experts and works on its own tokens",
                        "divided|whole"},
                       consist::strategies::capacity_option);
