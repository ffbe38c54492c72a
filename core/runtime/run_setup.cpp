#include "core/runtime/run_setup.h"

#include <utility>

#include "consist/error.h"
#include "core/plan/parts.h"

namespace consist {

std::vector<NamedTransport> make_transports(const RunConfig& config, PluginHost& host, const Layout& layout,
                                            const std::string& device_kind) {
  std::vector<NamedTransport> made;
  for (int axis = 0; axis < layout.mesh.axes(); ++axis) {
    const std::string name = transport_for(config, layout.strategy_of(axis).name);
    made.push_back({name, make_transport(name, config, host, device_kind)});
  }
  return made;
}

std::int64_t memory_limit(const RunConfig& config, const Device& device) {
  return config.memory_limit > 0 ? config.memory_limit : device.info().memory_bytes;
}

TrainingState make_state(const Plan& plan, Program step, std::optional<Program> evaluation, const Communicators& communicators,
                         int rank, Adviser* adviser, std::optional<TextPrograms> text) {
  Device& device = *plan.parts().device;
  const std::int64_t limit = memory_limit(plan.config(), device);
  try {
    return TrainingState(std::move(step), std::move(evaluation), device, communicators.by_queue(), rank, limit, std::move(text));
  } catch (const TooLarge& refusal) {
    const std::string fitting = adviser == nullptr ? "" : adviser->fitting(plan, {limit, refusal.bytes()});
    throw UsageError(refusal.what() + (fitting.empty() ? "" : "\nThese fit, by their plans and simulated steps:\n" + fitting));
  }
}

}  // namespace consist
