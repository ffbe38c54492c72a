#include "core/training/run_measures.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/record/bubble_fraction.h"
#include "core/record/metrics.h"
#include "core/record/rank_speeds.h"

namespace consist {

Bound bound_of(const Plan& plan) {
  const RunConfig& config = plan.config();
  const Parts& parts = plan.parts();
  Device& device = *plan.target().device;
  const double tokens = static_cast<double>(config.batch) * static_cast<double>(config.sequence) * config.accumulation *
                        static_cast<double>(config.steps);
  std::string too_short =
      too_short_for_bound(tokens * trained_flops_per_token(*parts.architecture, config.sequence, config.freeze));
  if (!too_short.empty()) return {0, std::move(too_short)};
  const ModelSizes sizes = parts.architecture->sizes();
  const DType operand = parts.precision->peak() == "fp8" ? DType::e4m3 : parts.precision->dtypes().parameter;
  const bool on_processor = device.info().kind == "cpu";  // another device works on while the host's threads wait
  return measure_bound([&] { return device.measure_matmul(operand, config.batch * config.sequence, sizes.ffn, sizes.hidden); },
                       [&] { return on_processor ? seconds_waited_for_processor() : -1; });
}

void add_rates(RunResult& result, const Plan& plan, const RunEvents& events) {
  const RunConfig& config = plan.config();
  const Parts& parts = plan.parts();
  result.peak_flops = peak_flops(plan.target().device->info(), parts.precision->peak());
  const Steady steady = steady_state(events.seconds());
  if (steady.steps == 0) return;
  result.tokens_per_second = static_cast<double>(events.tokens()) / steady.median_seconds;
  result.samples_per_second = static_cast<double>(events.sequences()) / steady.median_seconds;
  result.model_flops =
      result.tokens_per_second * trained_flops_per_token(*parts.architecture, config.sequence, config.freeze) / config.ranks;
}

std::string measure_bubble(Job& job, const Plan& plan, const Program& program, const RunEvents& events,
                           nlohmann::ordered_json& profile) {
  const std::vector<double>& seconds = events.seconds();
  if (program.stage_axis < 0 || events.profile().steps() == 0) return {};
  const double mean = std::accumulate(seconds.begin() + 1, seconds.end(), 0.0) / static_cast<double>(seconds.size() - 1);
  const std::vector<OpTimes> times = collect_op_times(job, op_times(program, events.profile()));
  const std::optional<BubbleReport> report = collect_bubble_report(job, plan, program, events.profile(), mean);
  if (!report) return {};
  profile["idle_share"] = {{"ranks", report->ranks},
                           {"mean", report->mean},
                           {"equal_stages", report->equal_stages},
                           {"by_ops", report->by_ops},
                           {"by_times", report->by_times}};
  const std::vector<double> speeds = rank_speeds(times);
  profile["rank_speeds"] = speeds;
  return bubble_text(*report) + "speeds beside one another by the ops that all have, for --pipeline.rank-speeds: " +
         stage_speeds_text(speeds, plan.layout().mesh, program.stage_axis) + "\n";
}

}  // namespace consist
