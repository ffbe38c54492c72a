// All checks of a machine, and what they came to as text and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/doctor/check.h"
#include "launch/doctor/expectations.h"
#include "launch/doctor/facts.h"
#include "launch/measure/short_figures.h"

namespace consist::doctor {

/// The part of a step's time that a finding costs.
struct StepCost {
  double fraction = 0, seconds = 0;
  std::optional<double> without;  ///< the fraction, if what is slow were left out
};

struct Result {
  std::string subject, name, expected;
  Finding finding;
  std::optional<StepCost> cost = std::nullopt;  ///< of the step that is judged, where it was predicted
};

/// A step of the job that the machine is to be judged by.
struct JudgedStep {
  std::string job;                          ///< its configuration in short
  double predicted = 0, with_measured = 0;  ///< seconds, by the machine's file and by what was measured
  double limit = 0;                         ///< --slower; a fraction
  double cost() const { return with_measured / predicted - 1; }
};

struct Report {
  std::string host;
  std::vector<Result> results;  ///< wrong ones first; else in the order of the checks
  std::optional<launch::ShortFigures> figures = std::nullopt;
  std::optional<JudgedStep> step = std::nullopt;

  int count(Status status) const;
  int exit_status() const;  ///< 1 if something is wrong
};

/// Looks at everything.
Report examine(const Facts& facts, const std::vector<Expectation>& expectations = {});
/// Adds results, in their place.
void add(Report& report, std::vector<Result> results);

/// For people: what is wrong, then warnings and what is unknown, each with its remedy; with `all` the others, too.
std::string report_text(const Report& report, bool all);
nlohmann::ordered_json json_of(const Report& report);
/// Reads host and results of what json_of() makes. Throws nlohmann::json::exception.
Report report_from(const nlohmann::json& json);

}  // namespace consist::doctor
