#include "launch/compare/outcome.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/archive/archived_json.h"
#include "core/archive/own_metric_values.h"
#include "core/archive/reader.h"
#include "core/base/quantity_text.h"
#include "core/record/metrics.h"
#include "core/record/traffic.h"
#include "launch/predict/costs.h"

namespace consist::launch {
namespace {

using nlohmann::json;

// Below these, medians of steps do not change by more than they do from run to run.
constexpr double most_stolen = 0.02;
constexpr double most_of_others = 0.02;
constexpr double enough_idle = 0.25;  ///< what others use besides does no harm while so much is idle

double number(const json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

void read_result(const std::string& text, RunOutcome& outcome) {
  const json result = archived_json(text);
  if (!result.is_object()) return;
  outcome.planned_bytes = number(result, "planned_bytes", 0);
  outcome.measured_bytes = number(result, "measured_peak_bytes", 0);
  outcome.measured_rank = static_cast<int>(number(result, "measured_peak_bytes_rank", -1));
  outcome.planned_host_bytes = number(result, "planned_host_bytes", outcome.planned_host_bytes);
  outcome.share_of_bound = number(result, "share_of_bound", unknown);
  outcome.bound_flops = number(result, "bound_flops_per_second", unknown);
  outcome.bound_problem = result.value("bound_problem", std::string());
  outcome.total_seconds += number(result, "start_seconds", 0);
  outcome.ended = number(result, "ended", unknown);
  if (const auto use = result.find("processors"); use != result.end() && use->is_object()) {
    outcome.processors = ProcessorUse{.own = number(*use, "own", 0),
                                      .others = number(*use, "others", 0),
                                      .stolen = number(*use, "stolen", 0),
                                      .idle = number(*use, "idle", 0)};
  }
}

double mean_clock(const ArchiveReader& archive) {
  const std::vector<double> clocks = archive.column_if_any("device_sm_clock");
  const double sum = std::accumulate(clocks.begin(), clocks.end(), 0.0);
  return clocks.empty() ? unknown : sum / static_cast<double>(clocks.size());
}

/// Mean of what is known; NaN of nothing.
template <typename Get>
double mean_of(const std::vector<RunOutcome>& runs, Get get) {
  double sum = 0;
  int count = 0;
  for (const RunOutcome& run : runs) {
    if (std::isnan(get(run))) continue;
    sum += get(run);
    ++count;
  }
  return count == 0 ? unknown : sum / count;
}

struct Counted {
  std::vector<double> rates;
  std::string disturbance;  ///< the largest, if other work was beside those that count
};

Counted counted_runs(const CompareOutcome& outcome) {
  std::vector<double> quiet, all;
  std::string disturbance;
  double most = 0;
  for (const RunOutcome& run : outcome.runs) {
    const std::string why = disturbance_of(run);
    all.push_back(run.tokens_per_second);
    if (why.empty()) quiet.push_back(run.tokens_per_second);
    const double share = run.processors ? run.processors->others + run.processors->stolen : 0;
    if (why.empty() || share < most) continue;
    most = share;
    disturbance = why;
  }
  if (quiet.size() >= 2 || quiet.size() == all.size()) return {quiet, ""};
  return {all, disturbance};
}

}  // namespace

RunOutcome read_outcome(const std::string& path, const std::string& price) {
  const ArchiveReader archive(path);
  if (!archive.text("/evaluation").empty()) {
    throw DataError("the archive " + path + " is of an evaluation, which has no steps; consist show says what it holds");
  }
  RunOutcome outcome{.status = archive.status(), .reason = printable(archive.reason()), .archive = path};
  const std::vector<double> seconds = archive.column("seconds"), tokens = archive.column("tokens"), loss = archive.column("loss");
  const Steady steady = steady_state(seconds);
  if (steady.steps == 0) return outcome;
  outcome.step_seconds = steady.median_seconds;
  outcome.tokens_per_second = tokens.back() / steady.median_seconds;
  outcome.step_tokens = static_cast<std::int64_t>(tokens.back());
  outcome.total_seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  outcome.final_loss = loss.back();
  outcome.loss_unit = printable(archive.loss_unit());
  outcome.metrics = final_metrics(archive);
  outcome.clock = mean_clock(archive);
  if (const auto sent = sent_per_step(archive.text("/comm"))) {
    outcome.bytes_sent_per_step = sent->bytes;
    outcome.sent_is_counted = sent->counted;
  }
  for (const ArchiveEvent& event : archive.events()) {
    if (event.kind == "advice") outcome.advice.push_back(event.text);
  }
  const json program = archived_json(archive.text("/program"));
  if (program.is_object()) {
    outcome.planned_host_bytes = number(program, "planned_host_bytes", 0);
    for (const auto& c : program.value("collectives", json::array())) outcome.collectives += number(c, "count", 0);
  }
  read_result(archive.text("/result"), outcome);
  const Costs costs = costs_of(
      archived_config(archive.text("/config")), archived_json(archive.text("/environment")), price, outcome.tokens_per_second,
      mean_power(archive.column_if_any("device_power"), seconds, static_cast<std::size_t>(steady.first_step - 1)));
  outcome.cost = costs.per_billion_tokens.value_or(unknown);
  outcome.joules = costs.joules_per_billion_tokens.value_or(unknown);
  return outcome;
}

CompareOutcome row_of(RunOutcome run) {
  CompareOutcome row{.status = "finished", .reason = {}, .disturbance = {}, .step_tokens = run.step_tokens};
  row.speed.mean = run.tokens_per_second;
  row.runs.push_back(std::move(run));
  return row;
}

std::string disturbance_of(const RunOutcome& run) {
  if (!run.processors) return {};
  if (run.processors->stolen > most_stolen)
    return "other virtual machines took " + percent_text(run.processors->stolen) + " of the processors' time";
  if (run.processors->others > most_of_others && run.processors->idle < enough_idle)
    return "other processes took " + percent_text(run.processors->others) + " of the processors' time";
  return {};
}

void settle(std::span<CompareOutcome> outcomes) {
  std::vector<std::vector<double>> undisturbed(outcomes.size());
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    CompareOutcome& outcome = outcomes[i];
    if (outcome.step_tokens == 0 && !outcome.runs.empty()) outcome.step_tokens = outcome.runs.front().step_tokens;
    const Counted counted = counted_runs(outcome);
    outcome.disturbance = counted.disturbance;
    outcome.speed = interval_of(counted.rates);
    if (outcome.disturbance.empty()) undisturbed[i] = counted.rates;
  }
  const std::vector<Interval> pooled = pooled_intervals(undisturbed);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!undisturbed[i].empty()) outcomes[i].speed = pooled[i];
  }
}

std::vector<std::string> loss_units(std::span<const CompareOutcome> outcomes) {
  std::vector<std::string> units;
  for (const CompareOutcome& outcome : outcomes) {
    if (!outcome.finished() || outcome.prediction) continue;
    const std::string& unit = outcome.runs.front().loss_unit;
    if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
  }
  return units;
}

std::string common_loss_unit(std::span<const CompareOutcome> outcomes) {
  const std::vector<std::string> units = loss_units(outcomes);
  if (units.size() > 1) return {};
  return units.empty() ? Loss::default_unit : units[0];
}

int quiet_runs(const CompareOutcome& outcome) {
  return static_cast<int>(
      std::count_if(outcome.runs.begin(), outcome.runs.end(), [](const RunOutcome& run) { return disturbance_of(run).empty(); }));
}

RunOutcome figures_of(const CompareOutcome& outcome) {
  RunOutcome shown = outcome.runs.front();
  shown.tokens_per_second = outcome.speed.mean;
  shown.step_seconds *= outcome.runs.front().tokens_per_second / outcome.speed.mean;  // tokens of a step are the same
  shown.share_of_bound =
      outcome.disturbance.empty() ? mean_of(outcome.runs, [](const RunOutcome& r) { return r.share_of_bound; }) : unknown;
  shown.cost *= outcome.runs.front().tokens_per_second / outcome.speed.mean;
  shown.joules = mean_of(outcome.runs, [](const RunOutcome& r) { return r.joules; });
  for (const RunOutcome& run : outcome.runs) {
    if (run.measured_bytes > shown.measured_bytes) {
      shown.measured_bytes = run.measured_bytes;
      shown.measured_rank = run.measured_rank;
    }
  }
  return shown;
}

}  // namespace consist::launch
