#include "launch/view/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "consist/error.h"
#include "core/archive/archived_json.h"
#include "launch/cli/json_values.h"
#include "launch/compare/effects.h"
#include "launch/compare/joined.h"
#include "launch/compare/table.h"
#include "launch/compare/winner.h"
#include "launch/view/report/run_data.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t few_rows = 16;           // of which everything is shown
constexpr std::size_t rows_with_detail = 8;    // of many rows
constexpr std::size_t points_of_many = 12000;  // of all rows together, if they are many
constexpr std::size_t items_of_many = 40;
constexpr std::size_t program_bytes = 1'000'000;  // of all rows together
constexpr std::size_t most_program_bytes = 200'000;

Json interval_json(const Interval& i) {
  return {{"mean", known(i.mean)}, {"low", known(i.low)}, {"high", known(i.high)}, {"count", i.count}};
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  ::gmtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

std::vector<std::string> models_of(const std::vector<CompareRow>& rows) {
  std::vector<std::string> models;
  for (const CompareRow& row : rows) {
    if (std::find(models.begin(), models.end(), model_of(row)) == models.end()) models.push_back(model_of(row));
  }
  return models;
}

std::string title_of(const std::vector<CompareRow>& rows) {
  std::string text;
  for (const std::string& model : models_of(rows)) text += (text.empty() ? "" : ", ") + model;
  return text + (rows.size() == 1 ? ": one configuration" : ": " + std::to_string(rows.size()) + " configurations");
}

Json lines_of(const std::string& text) {
  Json lines = Json::array();
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

/// One line for each doubt.
std::string doubts_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::string unequal = unequal_steps_text(rows, outcomes);
  std::replace(unequal.begin(), unequal.end(), '\n', ' ');
  return unequal + "\n" + warnings_text(rows, outcomes);
}

Json figures_json(const CompareOutcome& outcome, double parity) {
  const RunOutcome f = figures_of(outcome);
  Json figures{{"tokens_per_second", f.tokens_per_second},
               {"step_seconds", f.step_seconds},
               {"predicted_seconds", known(outcome.predicted_seconds)},
               {"share_of_bound", known(f.share_of_bound)},
               {"planned_bytes", f.planned_bytes},
               {"planned_host_bytes", f.planned_host_bytes},
               {"bytes_sent_per_step", known(f.bytes_sent_per_step)},
               {"sent_is_counted", f.sent_is_counted},
               {"clock", known(f.clock)}};
  if (outcome.prediction) {
    figures["mfu"] = outcome.prediction->model_flops_utilization;
    figures["step_error"] = known(outcome.prediction->time.error.value.value_or(unknown));
    figures["error_problem"] = why_unknown(outcome.prediction->time.error);
  } else {
    figures["measured_bytes"] = f.measured_bytes;
    figures["measured_rank"] = f.measured_rank;
    figures["final_loss"] = f.final_loss;
    figures["parity"] = known(parity);
    figures["bound_flops"] = known(f.bound_flops);
    figures["bound_problem"] = f.bound_problem;
    if (f.processors)
      figures["processors"] = {{"own", f.processors->own},
                               {"others", f.processors->others},
                               {"stolen", f.processors->stolen},
                               {"idle", f.processors->idle}};
  }
  return figures;
}

/// Rows of which timelines are kept where there are many: of each model the fastest two and the slowest.
std::set<std::size_t> detailed_rows(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  std::set<std::size_t> chosen;
  const bool all = rows.size() <= few_rows;
  for (std::size_t i = 0; all && i < rows.size(); ++i) chosen.insert(i);
  for (const std::string& model : models_of(rows)) {
    const Ranking ranking = rank_rows(rows, outcomes, model);
    for (std::size_t place = 0; place < ranking.rows.size() && (all || chosen.size() < rows_with_detail); ++place) {
      if (place < 2 || place + 1 == ranking.rows.size()) chosen.insert(ranking.rows[place]);
    }
  }
  return chosen;
}

Json models_json(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  Json models = Json::array();
  for (const std::string& model : models_of(rows)) {
    const Ranking ranking = rank_rows(rows, outcomes, model);
    models.push_back({{"model", model}, {"ranked", ranking.rows}, {"leaders", ranking.leaders}, {"reason", ranking.reason}});
  }
  return models;
}

Json effects_json(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  Json effects = Json::array();
  for (const ChoiceEffect& e : effects_of(rows, outcomes)) {
    effects.push_back({{"option", e.option},
                       {"value", e.value},
                       {"reference", e.reference},
                       {"speed", interval_json(e.speed)},
                       {"pairs", e.pairs},
                       {"simulated", e.simulated},
                       {"disturbance", e.disturbance},
                       {"text", e.text}});
  }
  return effects;
}

Json conditions_json(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes, bool configurations) {
  Json conditions = Json::array();
  for (const Condition& c : conditions_of(rows, outcomes, configurations)) {
    Json values = Json::array();
    for (const auto& [value, labels] : c.values) values.push_back({{"value", value}, {"rows", labels}});
    conditions.push_back({{"name", c.name}, {"values", values}});
  }
  return conditions;
}

/// Adds the rows' settings. Those that all rows have in common stand once.
void add_settings(Json& data, const std::vector<CompareOutcome>& outcomes) {
  std::vector<std::map<std::string, std::string>> settings;
  for (const CompareOutcome& outcome : outcomes) {
    try {
      settings.push_back(settings_of(outcome));
    } catch (const Error&) {
      settings.emplace_back();  // run_data() says what is wrong with it
    }
  }
  std::map<std::string, std::string> common;
  bool is_first = true;
  for (const auto& of_row : settings) {
    if (of_row.empty()) continue;
    if (std::exchange(is_first, false)) common = of_row;
    std::erase_if(common, [&](const auto& entry) {
      const auto found = of_row.find(entry.first);
      return found == of_row.end() || found->second != entry.second;
    });
  }
  data["settings"] = common;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    std::erase_if(settings[i], [&](const auto& entry) { return common.contains(entry.first); });
    data["rows"][i]["settings"] = settings[i];
  }
}

Json row_json(const CompareRow& row, const CompareOutcome& outcome, double parity) {
  Json json{{"label", row.label}, {"values", Json::object()}, {"status", outcome.status}, {"reason", outcome.reason}};
  for (const auto& [option, value] : row.varied) json["values"][option] = value;
  if (!outcome.finished()) return json;
  json["speed"] = interval_json(outcome.speed);
  json["disturbance"] = outcome.disturbance;
  json["figures"] = figures_json(outcome, parity);
  json["advice"] = outcome.runs.front().advice;
  return json;
}

}  // namespace

Json report_data(const ReportRequest& request, const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) {
  Json data{{"title", request.title.empty() ? title_of(rows) : request.title},
            {"version", CONSIST_VERSION},
            {"written", now_text()},
            {"command", request.command},
            {"models", models_json(rows, outcomes)},
            {"effects", effects_json(rows, outcomes)},
            {"conditions", conditions_json(rows, outcomes, request.configurations)},
            {"warnings", lines_of(doubts_text(rows, outcomes))}};
  const std::set<std::size_t> detailed = detailed_rows(rows, outcomes);
  const std::vector<double> parity = parities(rows, outcomes);
  SharedTexts texts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Json row = row_json(rows[i], outcomes[i], parity[i]);
    if (outcomes[i].same_program_as != i) {
      row["same_program_as"] = outcomes[i].same_program_as;
    } else {
      RunDetail detail{.program_bytes = std::min(most_program_bytes, program_bytes / rows.size())};
      if (rows.size() > few_rows)
        detail = {.points = std::max<std::size_t>(points_of_many / rows.size(), 50),
                  .items = items_of_many,
                  .program_bytes = detail.program_bytes};
      if (!detailed.contains(i)) detail.segments = 0;
      const std::string archive = outcomes[i].runs.empty() ? "" : outcomes[i].runs.front().archive;
      row["run"] = of_archive(archive, [&] { return run_data(outcomes[i], texts, detail); });
    }
    data["rows"].push_back(std::move(row));
  }
  add_settings(data, outcomes);
  data["texts"] = texts.all();
  return data;
}

}  // namespace consist::launch
