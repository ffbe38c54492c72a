#include "plugins/strategies/ep/overlap.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "plugins/strategies/common/batch_parts.h"

namespace consist::expert_parallel {
namespace {

double compute_seconds(const Program& program) {
  double all = 0;
  for (const Instruction& i : program.instructions) all += costs_of(program).compute_seconds(program, i);
  return all;
}

/// Seconds that a step saves if kernels run beside all of forward's token messages, which then take longer and slow the kernels.
double hidden_seconds(const Program& forward, AxisSet axes) {
  double all = 0;
  for (const Instruction& i : forward.instructions) {
    if (i.op->is_collective() && i.tag.layer >= 0 && i.queue.axes() == axes && i.op->movement() != Movement::all_reduce)
      all += costs_of(forward).seconds(forward, i);
  }
  const double longer = 1 / std::max(costs_of(forward).share_beside_compute(axes), 0.01);
  return all * (1 - longer * (1 - costs_of(forward).compute_share_beside(axes)));
}

/// Seconds of adding the second part's gradients of experts to the first one's: they are read and written once more.
double summing_seconds(const Program& forward, DType gradient) {
  std::set<TensorId> weights;
  double bytes = 0;
  for (const Instruction& i : forward.instructions) {
    const int input = i.op->expert_weights();
    if (input < 0 || !weights.insert(i.inputs[static_cast<std::size_t>(input)]).second) continue;
    bytes += static_cast<double>(forward.local(i.inputs[static_cast<std::size_t>(input)]).elements() * size_of(gradient));
  }
  return costs_of(forward).moving_seconds(2 * bytes);
}

/// True if halves are faster. Half of backward's messages, which are as many, count: weight gradients run beside the rest anyway.
bool halves_pay(const Program& whole, const Program& halves, AxisSet axes, DType gradient) {
  const double smaller_kernels = compute_seconds(halves) - compute_seconds(whole);
  constexpr double forward_and_backward = 3;  // times forward
  constexpr double messages = 1.5;            // of forward's
  return messages * hidden_seconds(whole, axes) > forward_and_backward * smaller_kernels + summing_seconds(whole, gradient);
}

}  // namespace

void cut_batch(Program& forward, AxisSet axes, int parts, DType gradient) {
  strategies::CutProgram cut = strategies::cut_batch(forward, parts == 0 ? 2 : parts, "ep");
  if (!cut.why_not.empty()) {
    if (parts != 0) throw UsageError("--ep.parts is " + std::to_string(parts) + ", but " + cut.why_not);
    return;
  }
  if (parts != 0 || halves_pay(forward, cut.program, axes, gradient)) forward = std::move(cut.program);
}

}  // namespace consist::expert_parallel
