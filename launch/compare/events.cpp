#include "launch/compare/events.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/archive/own_metric_values.h"
#include "launch/cli/json_values.h"
#include "launch/compare/table.h"
#include "launch/compare/winner.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

Json options_of(const CompareRow& row) {
  Json options = Json::object();
  for (const auto& [name, value] : row.varied) options[name] = value;
  return options;
}

Json known_if(bool is_known, double value) {
  return is_known ? Json(value) : Json(nullptr);
}

Json row_of(const CompareRow& row, const CompareOutcome& outcome, double parity) {
  const RunOutcome figures = outcome.finished() ? figures_of(outcome) : RunOutcome();
  const bool finished = outcome.finished();
  Json archives = Json::array();
  for (const RunOutcome& run : outcome.runs) {
    if (!run.archive.empty()) archives.push_back(run.archive);
  }
  return {{"label", row.label},
          {"options", options_of(row)},
          {"status", outcome.status},
          {"reason", text_or_null(outcome.reason)},
          {"tokens_per_second", known_if(finished, outcome.speed.mean)},
          {"tokens_per_second_low", known_if(finished && outcome.runs.size() > 1, outcome.speed.low)},
          {"tokens_per_second_high", known_if(finished && outcome.runs.size() > 1, outcome.speed.high)},
          {"ms", known_if(finished, figures.step_seconds * 1e3)},
          {"predicted_ms", outcome.predicted_seconds * 1e3},
          {"share_of_bound", figures.share_of_bound},
          {"planned_bytes", known_if(finished, figures.planned_bytes)},
          {"measured_bytes", known_if(finished && !outcome.prediction, figures.measured_bytes)},
          {"sent_bytes_per_step", figures.bytes_sent_per_step},
          {"loss", known_if(finished && !outcome.prediction, figures.final_loss)},
          {"metrics", finished ? json_of(outcome.runs.front().metrics) : Json::object()},
          {"parity", parity},
          {"cost_per_billion_tokens", figures.cost},
          {"joules_per_billion_tokens", figures.joules},
          {"disturbance", text_or_null(outcome.disturbance)},
          {"same_program_as", outcome.same_program_as},
          {"archives", archives}};
}

}  // namespace

Json comparison_event(const std::vector<CompareRow>& rows, const std::string& output) {
  Json event{{"event", "comparison"}, {"version", 1}, {"rows", Json::array()}, {"output", text_or_null(output)}};
  for (const CompareRow& row : rows) event["rows"].push_back({{"label", row.label}, {"options", options_of(row)}});
  return event;
}

Json started_event(std::size_t row, int repeat, const std::string& archive) {
  return {{"event", "run"}, {"row", row}, {"repeat", repeat}, {"state", "started"}, {"archive", archive}};
}

Json ended_event(std::size_t row, const RunOutcome& run) {
  const bool finished = run.status == "finished";
  return {{"event", "run"},
          {"row", row},
          {"repeat", run.repeat},
          {"state", run.status},
          {"archive", text_or_null(run.archive)},
          {"ms", known_if(finished, run.step_seconds * 1e3)},
          {"tokens_per_second", known_if(finished, run.tokens_per_second)},
          {"loss", known_if(finished, run.final_loss)},
          {"message", text_or_null(run.reason)}};
}

Json result_event(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes, const std::string& summary) {
  Json event{{"event", "result"}, {"rows", Json::array()}, {"winners", Json::array()}, {"archive", text_or_null(summary)}};
  const std::vector<double> parity = parities(rows, outcomes);
  std::set<std::string> models;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    event["rows"].push_back(row_of(rows[i], outcomes[i], parity[i]));
    models.insert(model_of(rows[i]));
  }
  for (const std::string& model : models) {
    const std::optional<std::size_t> winner = winner_of(rows, outcomes, model);
    event["winners"].push_back({{"model", model}, {"row", winner ? Json(*winner) : Json(nullptr)}});
  }
  return event;
}

}  // namespace consist::launch
