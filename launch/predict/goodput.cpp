#include "launch/predict/goodput.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/quantity_text.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

std::string duration_text(double seconds) {
  if (seconds < 1) return milliseconds_text(seconds);
  if (seconds < 120) return fixed_text(seconds, seconds < 10 ? 1 : 0) + " s";
  if (seconds < 7200) return fixed_text(seconds / 60, 0) + " min";
  return fixed_text(seconds / 3600, 1) + " h";
}

Json json_of(const CheckpointInterval& interval) {
  return {{"seconds", interval.seconds},
          {"steps", interval.steps},
          {"blocked_seconds", interval.blocked},
          {"goodput", interval.goodput}};
}

Json json_of(const std::optional<CheckpointInterval>& interval) {
  return interval ? json_of(*interval) : Json(nullptr);
}

}  // namespace

double goodput_of(double seconds, double blocked, double failure_seconds, double restart_seconds) {
  const double rate = 1 / failure_seconds;
  return seconds * rate / (std::exp(rate * restart_seconds) * std::expm1(rate * (seconds + blocked)));
}

CheckpointInterval best_interval(double blocked, double failure_seconds, double restart_seconds, double step_seconds,
                                 double least) {
  const auto at = [&](double seconds) { return goodput_of(seconds, blocked, failure_seconds, restart_seconds); };
  // One maximum between a step and the time between failures: narrowed by golden sections of the logarithm.
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double low = std::log(std::max(step_seconds, least)), high = std::max(low, std::log(10 * failure_seconds));
  while (high - low > 1e-6) {
    const double a = high - golden * (high - low), b = low + golden * (high - low);
    if (at(std::exp(a)) < at(std::exp(b))) {
      low = a;
    } else {
      high = b;
    }
  }
  CheckpointInterval best{.seconds = std::exp((low + high) / 2), .blocked = blocked, .goodput = 0, .steps = 1};
  best.steps = std::max<std::int64_t>(1, std::llround(best.seconds / step_seconds));
  best.seconds = static_cast<double>(best.steps) * step_seconds;
  best.goodput = at(best.seconds);
  return best;
}

Goodput goodput_of(const Prediction& prediction, const RunConfig& config, const Machine& machine, const FailureModel& model) {
  const double step_seconds = prediction.time.seconds;
  Goodput result{.model = model,
                 .ranks = config.ranks,
                 .failure_seconds = 3600 * model.device_hours / config.ranks,
                 .bytes = prediction.checkpoint_bytes};
  const double write = static_cast<double>(result.bytes) / model.storage_rate;
  result.best = best_interval(write, result.failure_seconds, model.restart_seconds, step_seconds);
  if (config.checkpoint_every > 0) {
    CheckpointInterval asked{.seconds = static_cast<double>(config.checkpoint_every) * step_seconds,
                             .blocked = write,
                             .steps = config.checkpoint_every};
    asked.goodput = goodput_of(asked.seconds, write, result.failure_seconds, model.restart_seconds);
    result.asked = asked;
  }
  if (const double link = machine.host_shared.value; link > 0) {
    const double copy = static_cast<double>(result.bytes) / config.ranks / link;
    // Work since the last snapshot that was written to its end is lost, too.
    result.snapshot = best_interval(copy, result.failure_seconds, model.restart_seconds + write, step_seconds, write);
  }
  constexpr double day = 86400;
  result.tokens_per_day_without_failures = prediction.tokens_per_second * day;
  result.tokens_per_day = result.tokens_per_day_without_failures * result.best.goodput;
  return result;
}

std::string text_of(const Goodput& g) {
  const auto interval = [](const CheckpointInterval& i) {
    return percent_text(i.goodput, 1) + " of the time trains, every " + duration_text(i.seconds) + " (" +
           std::to_string(i.steps) + " steps)";
  };
  std::string text = "failures   one in " + duration_text(g.failure_seconds) + " (" + std::to_string(g.ranks) +
                     " devices, one of each in " + fixed_text(g.model.device_hours, 0) + " h), " +
                     duration_text(g.model.restart_seconds) + " to be back; stated, not measured\n";
  text += "goodput    " + si_text(g.tokens_per_day) + " tokens a day of " + si_text(g.tokens_per_day_without_failures) + ": " +
          interval(g.best) + ", the best for checkpoints of " + bytes_text(g.bytes) + " that training waits " +
          duration_text(g.best.blocked) + " for\n";
  if (g.asked) text += "           " + interval(*g.asked) + ", as --checkpoint-every says\n";
  if (g.snapshot)
    text += "           " + interval(*g.snapshot) + " with snapshots in the host's memory (" +
            duration_text(g.snapshot->blocked) + "), written beside training (--max-restarts)\n";
  return text;
}

Json json_of(const Goodput& g) {
  return {{"failure_seconds", g.failure_seconds},
          {"restart_seconds", g.model.restart_seconds},
          {"storage_bytes_per_second", g.model.storage_rate},
          {"checkpoint_bytes", g.bytes},
          {"tokens_per_day", g.tokens_per_day},
          {"tokens_per_day_without_failures", g.tokens_per_day_without_failures},
          {"best", json_of(g.best)},
          {"asked", json_of(g.asked)},
          {"snapshot", json_of(g.snapshot)}};
}

}  // namespace consist::launch
