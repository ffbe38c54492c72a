#include "plugins/strategies/pipeline/in_flight_messages.h"

#include <utility>
#include <vector>

#include "consist/cost.h"
#include "consist/edit.h"
#include "consist/op.h"
#include "consist/places.h"

namespace consist::pipeline {
namespace {

struct InFlight {
  std::vector<TensorId> tensors;
  double seconds = 0;  ///< for which it is still in flight
};

}  // namespace

void keep_in_flight_messages(Program& step) {
  const CostModel& costs = costs_of(step);
  const std::vector<InstructionId> last = last_uses(step);
  std::vector<InFlight> in_flight;
  std::vector<std::pair<InstructionId, std::vector<TensorId>>> releases;  // behind which instruction
  for (std::size_t at = 0; at < step.instructions.size(); ++at) {
    const Instruction& instruction = step.instructions[at];
    const auto here = static_cast<InstructionId>(at);
    if (instruction.op->movement() == Movement::send) {
      InFlight sent;
      for (TensorId id : instruction.inputs) {
        if (id == no_tensor || last[static_cast<std::size_t>(step[id].storage)] != here) continue;
        sent.tensors.push_back(id);
        sent.seconds += 2 * costs.message_seconds(static_cast<double>(step.bytes(id)), instruction.queue.axes());
      }
      if (!sent.tensors.empty()) in_flight.push_back(std::move(sent));
    } else if (const double seconds = costs.compute_seconds(step, instruction); seconds > 0) {
      std::erase_if(in_flight, [&](InFlight& sent) {
        sent.seconds -= seconds;
        if (sent.seconds > 0) return false;
        releases.emplace_back(here, std::move(sent.tensors));
        return true;
      });
    }
  }
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
