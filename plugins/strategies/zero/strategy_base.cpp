#include "plugins/strategies/zero/strategy_base.h"

#include <algorithm>
#include <string>
#include <vector>

#include "consist/analysis.h"
#include "consist/error.h"
#include "consist/op.h"
#include "consist/rewrite.h"
#include "plugins/strategies/zero/gathers.h"
#include "plugins/strategies/zero/offload.h"
#include "plugins/strategies/zero/partition.h"
#include "plugins/strategies/zero/reduce_dtype.h"
#include "plugins/strategies/zero/reductions.h"
#include "plugins/strategies/zero/strip.h"

namespace consist::zero {
namespace {

/// As core/passes does; what `stripped` says of instructions goes with them.
void compute_beside_last_reduction(Program& step, Stripped& stripped, const Reduction& reduction) {
  std::vector<TensorId> gradients;
  for (const PartialGradient& gradient : stripped.gradients) gradients.push_back(gradient.whole);
  const std::vector<InstructionId> place = consist::compute_beside_last_reduction(step, gradients, reduction);
  const auto placed = [&](InstructionId i) { return i < 0 ? i : place[static_cast<std::size_t>(i)]; };
  for (Use& use : stripped.uses) {
    use.instruction = placed(use.instruction);
    use.ready = placed(use.ready);
  }
  for (PartialGradient& gradient : stripped.gradients) gradient.ready = placed(gradient.ready);
  std::ranges::stable_sort(stripped.uses, {}, &Use::instruction);
  std::ranges::stable_sort(stripped.gradients, {}, &PartialGradient::ready);
}

/// Schedules messages of the parameters that are flat along `axes`; `bucket` names the storages of gradients.
void schedule_along(Program& step, AxisSet axes, const std::string& bucket, const Settings& settings) {
  Stripped stripped = strip(step, axes);
  if (!settings.reduce_each) stripped.gradients = add_up_whole(step, stripped.gradients);
  if (settings.reduce_dtype) make_as(step, stripped.gradients, *settings.reduce_dtype);
  compute_beside_last_reduction(
      step, stripped, {.axes = axes, .collective = &registry().get("reduce_scatter"), .reduce_dtype = settings.reduce_dtype});
  Inserter inserter(step);
  // Gathers first: where both stand at one place, compute waits for the parameters, and not yet for the gradients.
  insert_gathers(step, inserter, stripped.uses, axes, settings);
  insert_reductions(step, inserter, stripped.gradients, axes, bucket, settings);
  inserter.apply();
}

}  // namespace

void ZeroStrategy::partition(Program& forward, AxisSet axes) const {
  if (axes.empty() && settings_.offload_param) {
    throw UsageError("--" + std::string(settings_.strategy) +
                     ".offload-param.device is cpu on one rank: parameters come from the host in front of gathers, and one rank "
                     "gathers nothing; leave it out and offload the optimizer's states alone, or give it more ranks");
  }
  zero::partition(forward, axes, settings_);
  place_parameters(forward, settings_);
}

void ZeroStrategy::schedule(Program& step, AxisSet axes) const {
  if (axes.empty()) return;  // one rank
  std::vector<TensorId> parameters;
  for (const Parameter& parameter : step.parameters) parameters.push_back(parameter.tensor);
  // The largest first: its reduction is the step's last, beside which products are moved that stand behind no other collective.
  const std::vector<AxisSet> sets = sets_with(step, parameters, Placement::flat(), axes);
  for (const AxisSet set : sets) {
    const std::string of_set = set == sets.front() ? "" : "." + step.mesh.text(set);
    schedule_along(step, set, settings_.strategy + of_set + ".bucket", settings_);
  }
}

void ZeroStrategy::finish(Program& program, AxisSet axes) const {
  copy_before_gathers(program, axes, settings_);
  stream_optimizer(program, settings_);
}

}  // namespace consist::zero
