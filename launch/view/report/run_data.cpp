#include "launch/view/report/run_data.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "core/archive/archived_json.h"
#include "core/archive/own_metric_values.h"
#include "core/archive/reader.h"
#include "core/program/own_metrics.h"
#include "core/record/metrics.h"
#include "launch/cli/json_values.h"
#include "launch/residual/residual.h"
#include "launch/residual/residual_text.h"
#include "launch/view/report/time_parts.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

/// Curves are shown, not computed with: seven digits are more than a pixel.
Json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return std::strtod(text, nullptr);
}

/// The steps that are shown, of `rows` steps: every k-th, the first and the last among them.
std::vector<std::size_t> shown_steps(std::size_t rows, std::size_t points) {
  const std::size_t stride = std::max<std::size_t>((rows + points - 1) / std::max<std::size_t>(points, 1), 1);
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < rows; i += stride) shown.push_back(i);
  if (!shown.empty() && shown.back() != rows - 1) shown.push_back(rows - 1);
  return shown;
}

Json curves_of(const ArchiveReader& archive, std::size_t points) {
  const std::vector<double> seconds = archive.column("seconds");
  const std::vector<std::size_t> shown = shown_steps(seconds.size(), points);
  Json curves{{"steps", seconds.size()}, {"stride", shown.size() > 1 ? shown[1] - shown[0] : 1}, {"columns", Json::object()}};
  for (const std::string& name : archive.columns()) {
    if (name == "seconds" || name == "samples_per_second" || name == "tokens") continue;
    const std::vector<double> values = archive.column(name);
    Json& column = curves["columns"][name] = Json::array();
    bool any = false;
    for (const std::size_t i : shown) {
      column.push_back(name == "step" ? Json(static_cast<std::int64_t>(values[i])) : short_number(values[i]));
      any = any || (std::isfinite(values[i]) && values[i] != 0);
    }
    if (!any && is_column_of_runs(name)) curves["columns"].erase(name);
  }
  curves["loss_unit"] = archive.loss_unit();
  curves["own_metrics"] = Json::array();
  for (const OwnMetricValue& metric : final_metrics(archive)) curves["own_metrics"].push_back(metric.name);
  const Steady steady = steady_state(seconds);
  curves["steady"] = {{"first_step", steady.first_step},
                      {"steps", steady.steps},
                      {"median_seconds", steady.median_seconds},
                      {"low_seconds", steady.low_seconds},
                      {"high_seconds", steady.high_seconds}};
  for (const ArchivedEvaluation& e : archive.evaluations()) curves["evaluations"].push_back({e.step, e.loss, e.sequences});
  return curves;
}

Json events_of(const ArchiveReader& archive) {
  constexpr std::size_t most = 20;
  Json events = Json::array();
  for (const ArchiveEvent& event : archive.events()) {
    if (events.size() < most && event.kind != "sample") events.push_back({event.kind, event.text});
  }
  return events;
}

/// The newest samples of text: {"step", "text"} each.
Json samples_of(const ArchiveReader& archive) {
  constexpr std::size_t most = 3;
  Json samples = Json::array();
  for (const ArchiveEvent& event : archive.events()) {
    if (event.kind != "sample") continue;
    const Json sample = archived_object<Json>(event.text);
    const bool whole =
        sample.contains("step") && sample["step"].is_number() && sample.contains("text") && sample["text"].is_string();
    samples.push_back(whole ? Json{{"step", sample["step"]}, {"text", sample["text"]}}
                            : Json{{"step", nullptr}, {"text", event.text}});
    if (samples.size() > most) samples.erase(samples.begin());
  }
  return samples;
}

Json repeats_of(const CompareOutcome& outcome) {
  Json repeats = Json::array();
  for (const RunOutcome& run : outcome.runs) {
    repeats.push_back({{"archive", run.archive},
                       {"tokens_per_second", run.tokens_per_second},
                       {"step_seconds", run.step_seconds},
                       {"clock", known(run.clock)},
                       {"disturbance", disturbance_of(run)}});
  }
  return repeats;
}

/// Parts of the step time of a row that was only simulated.
Json predicted_time(const Prediction& prediction) {
  const StepTime& time = prediction.time;
  Json parts = json_of(time);
  parts.erase("exposed_communication");
  for (const auto& [axis, seconds] : time.communication) parts["communication:" + axis] = seconds;
  if (time.bubble == 0) parts.erase("bubble");
  if (time.copies == 0) parts.erase("copies");
  return {{"source", "predicted"}, {"step_seconds", time.seconds}, {"parts", parts}, {"items", Json::array()}};
}

void add_archive(Json& row, const CompareOutcome& outcome, SharedTexts& texts, const RunDetail& detail) {
  const ArchiveReader archive(outcome.runs.front().archive);
  row["archive_version"] = archive.version();
  row["status"] = archive.status();
  row["curves"] = curves_of(archive, detail.points);
  row["events"] = events_of(archive);
  row["samples"] = samples_of(archive);
  row["start"] = archived_object<Json>(archive.text("/start"));
  row["comm"] = archived_object<Json>(archive.text("/comm"));
  row["result"] = archived_object<Json>(archive.text("/result"));
  row["topology"] = archived_object<Json>(archive.text("/topology"));
  const Json program = archived_object<Json>(archive.text("/program"));
  for (const char* key : {"parameters", "flops_per_step_and_rank", "collectives", "memory_at_peak", "planned_bytes"}) {
    if (program.contains(key)) row["program"][key] = program[key];
  }
  const Json environment = archived_object<Json>(archive.text("/environment"));
  for (const char* key : {"host", "device", "device_kind", "processor", "usable_cores", "planned_for"}) {
    if (environment.contains(key)) row["environment"][key] = environment[key];
  }
  row["tokens_per_step"] = archive.column("tokens").back();
  const StepParts step = step_parts(outcome);
  row["time"] = time_data(step, texts, detail);
  row["residual"] = json_of(read_residual(step, outcome));
}

}  // namespace

std::size_t SharedTexts::number_of(const std::string& text) {
  const auto [found, is_new] = numbers_.try_emplace(text, texts_.size());
  if (is_new) texts_.push_back(text);
  return found->second;
}

Json run_data(const CompareOutcome& outcome, SharedTexts& texts, const RunDetail& detail) {
  Json row{{"repeats", repeats_of(outcome)}, {"problems", Json::array()}};
  if (outcome.prediction) {
    row["repeats"] = Json::array();
    row["time"] = predicted_time(*outcome.prediction);
    if (outcome.step_tokens > 0) row["tokens_per_step"] = outcome.step_tokens;
  } else if (outcome.finished()) {
    try {
      add_archive(row, outcome, texts, detail);
    } catch (const Error& error) {
      row["problems"].push_back(error.what());
    }
  }
  return row;
}

std::map<std::string, std::string> settings_of(const CompareOutcome& outcome) {
  std::map<std::string, std::string> settings;
  if (outcome.runs.empty() || outcome.runs.front().archive.empty()) return settings;
  const ArchiveReader archive(outcome.runs.front().archive);
  for (const char* name : {"config", "environment"}) {
    const Json object = archived_object<Json>(archive.text(std::string("/") + name));
    if (object.empty()) continue;
    const Json flat = object.flatten();
    for (const auto& [key, value] : flat.items())
      settings[name + key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return settings;
}

}  // namespace consist::launch
