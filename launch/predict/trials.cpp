#include "launch/predict/trials.h"

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "consist/error.h"
#include "core/base/in_parallel.h"

namespace consist::launch {
namespace {

Target target_of(const Plan& plan) {
  return {nullptr, plan.target().machine, false, plan.target().automatic};
}

}  // namespace

std::vector<Trial> try_alternatives(const Plan& plan, PluginHost& host, std::vector<Alternative> alternatives,
                                    const TrialLimits& limits) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::vector<std::optional<Prediction>> predictions(alternatives.size());
  std::mutex making;  // the host makes one part after the other
  in_parallel(alternatives.size(), limits.threads, [&](std::size_t n) {
    if (limits.seconds > 0 && std::chrono::duration<double>(Clock::now() - begin).count() > limits.seconds) return;
    try {
      std::unique_lock lock(making);
      const Plan other = plan_run(changed(plan.config(), alternatives[n].choices, host), host, target_of(plan));
      lock.unlock();
      predictions[n] = predict(other);
    } catch (const Error&) {  // refused
    }
  });
  std::vector<Trial> trials;
  for (std::size_t n = 0; n < alternatives.size(); ++n) {
    if (predictions[n]) trials.push_back({std::move(alternatives[n]), std::move(*predictions[n])});
  }
  return trials;
}

Plan without_device(const Plan& plan) {
  return plan.for_target(target_of(plan));
}

Room room_of(const Machine& machine) {
  return {static_cast<std::int64_t>(machine.device.memory_bytes.value), 0};
}

}  // namespace consist::launch
