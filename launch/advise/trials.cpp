#include "launch/advise/trials.h"

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <utility>

#include "consist/error.h"

namespace consist::launch {
namespace {

Target target_of(const Plan& plan) {
  return {nullptr, plan.target().machine, false};
}

}  // namespace

std::vector<Trial> try_alternatives(const Plan& plan, PluginHost& host, std::vector<Alternative> alternatives,
                                    const TrialLimits& limits) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::vector<std::optional<Prediction>> predictions(alternatives.size());
  std::atomic<std::size_t> next{0};
  std::mutex making;  // the host makes one part after the other
  const auto work = [&] {
    for (std::size_t n = next++; n < alternatives.size(); n = next++) {
      if (limits.seconds > 0 && std::chrono::duration<double>(Clock::now() - begin).count() > limits.seconds) return;
      try {
        std::unique_lock lock(making);
        const Plan other = plan_run(changed(plan.config(), alternatives[n].choices, host), host, target_of(plan));
        lock.unlock();
        predictions[n] = predict(other);
      } catch (const Error&) {
        continue;
      }
    }
  };
  std::vector<std::future<void>> others;
  for (int thread = 1; thread < limits.threads; ++thread) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  std::vector<Trial> trials;
  for (std::size_t n = 0; n < alternatives.size(); ++n) {
    if (predictions[n]) trials.push_back({std::move(alternatives[n]), std::move(*predictions[n])});
  }
  return trials;
}

Prediction base_prediction(const Plan& plan, PluginHost& host, int threads) {
  return predict(plan_run(plan.config(), host, target_of(plan)), threads);
}

Room room_of(const Machine& machine) {
  return {static_cast<std::int64_t>(machine.device.memory_bytes.value), 0};
}

}  // namespace consist::launch
