#include "core/training/run_setup.h"

#include <utility>

#include "consist/error.h"
#include "core/plan/links.h"
#include "core/plan/parts.h"

namespace consist {

void plan_for_device(Plan& plan, Job& job, const Machine& machine) {
  const std::shared_ptr<Device>& device = plan.parts().device;
  AutomaticTransports automatic;  // of one rank there is nothing to connect
  if (job.size() > 1) automatic = agree_on_transports(job, plan.config(), plan.host(), device->info().kind);
  plan.set_target({device, std::make_shared<Machine>(machine), true, std::move(automatic)});
  plan.config().chosen_transport = chosen_transports(plan);
}

TransportMaker transport_maker(Plan& plan) {
  return [&plan](const std::string& name) {
    return make_transport(name, plan.config(), plan.host(), plan.parts().device->info().kind);
  };
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
