#include "plugins/strategies/pipeline/in_flight_messages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "consist/begins.h"
#include "consist/cost.h"
#include "consist/edit.h"
#include "consist/op.h"
#include "consist/places.h"

namespace consist::pipeline {
void keep_in_flight_messages(Program& step) {
  const CostModel& costs = costs_of(step);
  const std::vector<InstructionId> last = last_uses(step);
  const Begins begins(step);
  std::vector<std::pair<InstructionId, std::vector<TensorId>>> releases;  // behind which instruction
  for (std::size_t at = 0; at < step.instructions.size(); ++at) {
    const Instruction& instruction = step.instructions[at];
    const auto here = static_cast<InstructionId>(at);
    if (instruction.op->movement() != Movement::send) continue;
    std::vector<TensorId> sent;
    double seconds = 0;  // for which it is in flight
    for (TensorId id : instruction.inputs) {
      if (id == no_tensor || last[static_cast<std::size_t>(step[id].storage)] != here) continue;
      sent.push_back(id);
      seconds += 2 * costs.message_seconds(static_cast<double>(step.bytes(id)), instruction.queue.axes());
    }
    const double arrived = begins.of(here) + seconds;
    if (!sent.empty() && arrived <= begins.end()) releases.emplace_back(begins.first_from(arrived) - 1, std::move(sent));
  }
  std::ranges::stable_sort(releases, {}, [](const auto& release) { return release.first; });
  Inserter inserter(step);
  for (const auto& [behind, tensors] : releases) {
    inserter.after(behind, [&, at = static_cast<std::size_t>(behind)](Builder& builder) {
      builder.tag = step.instructions[at].tag;
      builder.tag.inserted_by = "pipeline";
      builder.emit("release", tensors);
    });
  }
  inserter.apply();
}

}  // namespace consist::pipeline
