#include "launch/residual/residual_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "launch/cli/json_values.h"
#include "launch/residual/terms.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr double least_shown = 0.005;  // terms of a smaller share of the step are put together

std::string signed_text(double seconds) {
  return (seconds < 0 ? "-" : "+") + milliseconds_text(std::abs(seconds));
}

std::string part_name(const std::string& part) {
  if (part == "memory_bound") return "memory-bound ops";
  if (part.starts_with("communication:")) return "communication (" + part.substr(part.find(':') + 1) + ")";
  if (part == "host") return "gaps and the host";
  if (part == "data") return "waiting for data";
  return part;
}

std::string percent_of(const Residual& residual) {
  const double change = residual.measured / residual.predicted - 1;
  return (change < 0 ? "" : "+") + percent_text(change, 1);
}

std::string head_of(const Residual& residual) {
  std::string text = "Predicted for " + residual.machine + ": " + milliseconds_text(residual.predicted) + " a step, measured " +
                     milliseconds_text(residual.measured) + ": " + signed_text(residual.measured - residual.predicted) + " (" +
                     percent_of(residual) + "). ";
  if (!residual.step_error) return text + "How far such predictions are off is not known.\n";
  text += "95% of such predictions are within ±" + percent_text(*residual.step_error, 1);
  return text + (residual.within_error() ? ", so that nothing needs a cause.\n" : ".\n");
}

std::string row(const std::string& name, const std::string& value, const std::string& text) {
  std::string line = "  " + name + std::string(name.size() < 24 ? 24 - name.size() : 1, ' ');
  line += std::string(value.size() < 12 ? 12 - value.size() : 0, ' ') + value + (text.empty() ? "" : "   " + text);
  return line + "\n";
}

std::string groups_text(const ResidualTerm& term) {
  std::string text;
  for (const ResidualGroup& group : term.groups)
    text += (text.empty() ? "" : "; ") + group.text + " " + milliseconds_text(group.predicted, 2) + " to " +
            milliseconds_text(group.measured, 2);
  return text;
}

}  // namespace

std::string residual_text(const Residual& residual) {
  if (!residual.problem.empty()) return residual.problem + "\n";
  std::string text = head_of(residual) + "\n" + row("predicted", milliseconds_text(residual.predicted), "");
  double small = 0;
  int count = 0;
  for (const ResidualTerm& term : residual.terms) {
    if (std::abs(term.seconds) < least_shown * residual.measured) {
      small += term.seconds;
      ++count;
      continue;
    }
    const std::string cause =
        term.cause.empty() ? "not more than predictions are off" : causes().at(term.cause).name + ": " + term.text;
    text += row(part_name(term.part), signed_text(term.seconds), cause);
    if (const std::string groups = groups_text(term); !groups.empty()) text += std::string(41, ' ') + groups + "\n";
  }
  if (count > 0) text += row("smaller differences", signed_text(small), "");
  text += row("measured", milliseconds_text(residual.measured), "");
  const auto by_cause = residual.by_cause();
  if (!by_cause.empty()) text += "\nThe likeliest causes, and what to look at:\n";
  for (const auto& [cause, seconds] : by_cause) {
    const CauseKind& kind = causes().at(cause);
    text += "  " + signed_text(seconds) + "  " + kind.name + ": " + (seconds > 0 ? kind.remedy : "less than predicted") + "\n";
  }
  return text;
}

std::string residual_line(const Residual& residual) {
  if (!residual.problem.empty()) return {};
  std::string text = "predicted " + milliseconds_text(residual.predicted) + " for " + residual.machine + ", measured " +
                     milliseconds_text(residual.measured) + " (" + percent_of(residual) + ")";
  if (residual.within_error()) return text + ", within the error of predictions";
  std::string list;
  int named = 0;
  for (const auto& [cause, seconds] : residual.by_cause()) {
    if (named++ == 2) break;
    list += (list.empty() ? ": " : ", ") + causes().at(cause).name + " " + signed_text(seconds);
  }
  return text + list;
}

Json json_of(const Residual& residual) {
  if (!residual.problem.empty()) return {{"version", 1}, {"problem", residual.problem}};
  Json terms = Json::array(), by_cause = Json::array();
  for (const ResidualTerm& term : residual.terms) {
    Json groups = Json::array();
    for (const ResidualGroup& group : term.groups)
      groups.push_back(
          {{"instructions", group.text}, {"predicted_seconds", group.predicted}, {"measured_seconds", group.measured}});
    terms.push_back({{"part", term.part},
                     {"cause", text_or_null(term.cause)},
                     {"seconds", term.seconds},
                     {"text", term.text},
                     {"groups", groups}});
  }
  for (const auto& [cause, seconds] : residual.by_cause())
    by_cause.push_back(
        {{"cause", cause}, {"name", causes().at(cause).name}, {"seconds", seconds}, {"remedy", causes().at(cause).remedy}});
  return {{"version", 1},
          {"problem", nullptr},
          {"machine", residual.machine},
          {"step_error", known(residual.step_error)},
          {"predicted_seconds", residual.predicted},
          {"measured_seconds", residual.measured},
          {"within_error", residual.step_error ? Json(residual.within_error()) : Json()},
          {"terms", terms},
          {"causes", by_cause}};
}

}  // namespace consist::launch
