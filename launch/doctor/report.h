// All checks of a machine, and what they came to as text and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/doctor/check.h"
#include "launch/doctor/expectations.h"
#include "launch/doctor/facts.h"

namespace consist::doctor {

struct Result {
  std::string subject, name, expected;
  Finding finding;
};

struct Report {
  std::string host;
  std::vector<Result> results;  ///< wrong ones first; else in the order of the checks

  int count(Status status) const;
  int exit_status() const;  ///< 1 if something is wrong
};

/// Looks at everything.
Report examine(const Facts& facts, const std::vector<Expectation>& expectations = {});

/// For people: what is wrong, then warnings and what is unknown, each with its remedy; with `all` the others, too.
std::string report_text(const Report& report, bool all);
nlohmann::ordered_json json_of(const Report& report);

}  // namespace consist::doctor
