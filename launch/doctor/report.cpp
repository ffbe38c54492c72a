#include "launch/doctor/report.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/base/quantity_text.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_values.h"
#include "launch/doctor/words.h"

namespace consist::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr struct {
  Status status;
  const char* word;
  const char* in_json;
} status_names[] = {{Status::wrong, "WRONG", "wrong"},
                    {Status::warning, "warning", "warning"},
                    {Status::unknown, "unknown", "unknown"},
                    {Status::not_applicable, "not here", "not_applicable"},
                    {Status::ok, "ok", "ok"}};

const auto& names_of(Status status) {
  return *std::find_if(std::begin(status_names), std::end(status_names), [&](const auto& row) { return row.status == status; });
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

std::string line_of(const Result& result, bool all) {
  constexpr std::size_t status_width = 10, name_width = 20;
  const Finding& finding = result.finding;
  std::string line = padded(names_of(finding.status).word, status_width) + padded(result.name, name_width) + finding.found + "\n";
  const std::string margin(status_width + name_width, ' ');
  if (all) line += margin + "expected: " + result.expected + "\n";
  if (!finding.remedy.empty()) line += margin + "do: " + finding.remedy + "\n";
  return line;
}

Json json_of(const StepCost& cost) {
  return {{"fraction", cost.fraction}, {"seconds", cost.seconds}, {"without_fraction", launch::known(cost.without)}};
}

Json json_of(const JudgedStep& step) {
  return {{"job", step.job},
          {"predicted_seconds", step.predicted},
          {"with_measured_seconds", step.with_measured},
          {"cost_fraction", step.cost()},
          {"slower_fraction", step.limit}};
}

/// The measured figures, without the machines' files.
Json json_of_measured(const launch::ShortFigures& figures) {
  Json json = json_of_parts(figures.ranks, figures.links);
  json["device"] = figures.device;
  json["step"] = figures.step;
  json["machine"] = figures.base.name;
  json["comparable"] = figures.is_comparable;
  for (const char* at : {"node", "network"}) {
    const bool across = std::string_view(at) == "network";
    json[at] = figures.transports[across].empty()
                   ? Json()
                   : Json{{"transport", figures.transports[across]}, {"path", figures.paths[across]}};
  }
  return json;
}

std::string text_of(const JudgedStep& step) {
  const auto change = [](double fraction) { return (fraction < 0 ? "" : "+") + percent_text(fraction, 1); };
  return "Step of " + step.job + ": predicted " + milliseconds_text(step.predicted) + " by the machine's file, " +
         milliseconds_text(step.with_measured) + " (" + change(step.cost()) + ") with what was measured here; --slower is " +
         percent_text(step.limit, 1) + ".";
}

}  // namespace

int Report::count(Status status) const {
  return static_cast<int>(
      std::count_if(results.begin(), results.end(), [&](const Result& result) { return result.finding.status == status; }));
}

int Report::exit_status() const {
  return count(Status::wrong) > 0 ? exit_failed : 0;
}

Report examine(const Facts& facts, const std::vector<Expectation>& expectations) {
  Report report{.host = facts.machine.host};
  for (const std::span<const Check> checks :
       {driver_checks(), gpu_checks(), library_checks(), limit_checks(), network_checks(), clock_checks()}) {
    for (const Check& check : checks) report.results.push_back({check.subject, check.name, check.expected, check.look(facts)});
  }
  for (const Expectation& expected : expectations)
    report.results.push_back(
        {"expect", "expect-" + expected.thing, std::to_string(expected.count) + " (--expect)", compare_with(expected, facts)});
  add(report, {});
  return report;
}

void add(Report& report, std::vector<Result> results) {
  std::move(results.begin(), results.end(), std::back_inserter(report.results));
  std::stable_sort(report.results.begin(), report.results.end(),
                   [](const Result& a, const Result& b) { return a.finding.status < b.finding.status; });
}

std::string report_text(const Report& report, bool all) {
  std::string text;
  for (const Result& result : report.results) {
    const Status status = result.finding.status;
    if (all || (status != Status::ok && status != Status::not_applicable)) text += line_of(result, all);
  }
  if (!text.empty()) text += "\n";
  if (report.step) text += text_of(*report.step) + "\n";
  text += report.host + ": " + std::to_string(report.count(Status::wrong)) + " wrong, " +
          number_of(report.count(Status::warning), "warning") + ", " + std::to_string(report.count(Status::unknown)) +
          " unknown, " + std::to_string(report.count(Status::ok)) + " ok, " +
          std::to_string(report.count(Status::not_applicable)) + " do not apply here";
  return text + (all ? ".\n" : " (--all lists them).\n");
}

Json json_of(const Report& report) {
  Json counts = Json::object(), checks = Json::array();
  for (const auto& row : status_names) counts[row.in_json] = report.count(row.status);
  for (const Result& result : report.results)
    checks.push_back({{"subject", result.subject},
                      {"check", result.name},
                      {"status", names_of(result.finding.status).in_json},
                      {"expected", result.expected},
                      {"found", result.finding.found},
                      {"remedy", launch::text_or_null(result.finding.remedy)},
                      {"cost", result.cost ? json_of(*result.cost) : Json()}});
  return {{"version", 1},
          {"host", report.host},
          {"counts", std::move(counts)},
          {"checks", std::move(checks)},
          {"measured", report.figures ? json_of_measured(*report.figures) : Json()},
          {"step", report.step ? json_of(*report.step) : Json()}};
}

Report report_from(const nlohmann::json& json) {
  Report report{.host = json.at("host").get<std::string>()};
  for (const nlohmann::json& check : json.at("checks")) {
    const std::string status = check.at("status").get<std::string>();
    const auto* const row =
        std::find_if(std::begin(status_names), std::end(status_names), [&](const auto& name) { return status == name.in_json; });
    const nlohmann::json& remedy = check.at("remedy");
    report.results.push_back(
        {check.at("subject").get<std::string>(),
         check.at("check").get<std::string>(),
         check.at("expected").get<std::string>(),
         {row == std::end(status_names) ? Status::unknown : row->status, check.at("found").get<std::string>(),
          remedy.is_null() ? std::string() : remedy.get<std::string>()}});
  }
  return report;
}

}  // namespace consist::doctor
