#include "launch/view/show/view_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/archive/own_metric_values.h"
#include "launch/cli/json_values.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

/// The value at a path as it stands in the archive.
Json at(const nlohmann::json& object, const std::string& path) {
  const nlohmann::json::json_pointer pointer(path);
  return object.contains(pointer) ? Json(object[pointer]) : Json(nullptr);
}

}  // namespace

Json json_of(const RunView& run, const std::string& price) {
  const Speed speed = speed_of(run);
  const Costs costs = costs_of(run, price);
  const bool steady = speed.steady.steps > 0;
  const auto rate = [&](double value) { return known(steady ? std::optional(value) : std::nullopt); };
  const bool ended = !run.result.empty();
  const nlohmann::json& planned = ended ? run.result : run.program;
  const std::string largest = ended ? "" : "/largest";
  Json json{
      {"version", 1},
      {"archive", run.path},
      {"status", run.status},
      {"reason", run.reason},
      {"model",
       {{"name", at(run.config, "/model")},
        {"parameters", at(run.program, "/parameters")},
        {"frozen_model_parameters", at(run.program, "/frozen_model_parameters")}}},
      {"strategy", at(run.config, "/strategy")},
      {"ranks", at(run.config, "/ranks")},
      {"axes", at(run.topology, "/axes")},
      {"precision", at(run.config, "/precision")},
      {"dataset", at(run.config, "/dataset")},
      {"sequences_per_step", at(run.config, "/global_batch")},
      {"sequence", at(run.config, "/sequence")},
      {"machine",
       {{"host", at(run.environment, "/host")},
        {"device", at(run.environment, "/device")},
        {"planned_for", at(run.environment, "/planned_for/machine")}}},
      {"step", run.done()},
      {"steps", at(run.config, "/steps")},
      {"seconds_left", known(seconds_left(run))},
      {"written", run.written},
      {"tokens_per_second", {{"median", rate(speed.tokens_per_second)}, {"low", rate(speed.low)}, {"high", rate(speed.high)}}},
      {"step_seconds", rate(speed.steady.median_seconds)},
      {"steady_steps", speed.steady.steps},
      {"data_share", rate(speed.data_share)},
      {"loss", known(run.loss.empty() ? std::nullopt : std::optional(run.loss.back()))},
      {"loss_unit", run.loss_unit},
      {"metrics", json_of(run.metrics)},
      {"planned_bytes", at(planned, largest + "/planned_bytes")},
      {"planned_bytes_rank", at(planned, largest + "/planned_bytes_rank")},
      {"planned_host_bytes", at(planned, largest + "/planned_host_bytes")},
      {"measured_peak_bytes", at(run.result, "/measured_peak_bytes")},
      {"measured_peak_bytes_rank", at(run.result, "/measured_peak_bytes_rank")},
      {"share_of_bound", at(run.result, "/share_of_bound")},
      {"bound_problem", at(run.result, "/bound_problem")},
      {"mfu", at(run.result, "/mfu")},
      {"residual", text_or_null(run.residual)},
      {"cost_per_hour", known(costs.per_hour)},
      {"cost_per_billion_tokens", known(costs.per_billion_tokens)},
      {"device_watts", known(costs.watts)},
      {"joules_per_billion_tokens", known(costs.joules_per_billion_tokens)},
      {"evaluation", run.evaluation.empty() ? Json() : Json(run.evaluation)},
      {"evaluations", Json::array()},
      {"events", Json::array()}};
  for (const ArchivedEvaluation& one : run.evaluations)
    json["evaluations"].push_back({{"step", one.step},
                                   {"loss", known(one.loss)},
                                   {"sequences", one.sequences},
                                   {"time", one.time},
                                   {"metrics", json_of(one.metrics)}});
  for (const ArchiveEvent& event : run.events)
    json["events"].push_back({{"time", event.time}, {"kind", event.kind}, {"text", event.text}});
  return json;
}

}  // namespace consist::launch
