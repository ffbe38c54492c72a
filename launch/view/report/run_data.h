// Data of one row of a report: read from the archives of its runs.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/compare/outcome.h"

namespace consist::launch {

/// Texts that many rows share, by number.
class SharedTexts {
 public:
  std::size_t number_of(const std::string& text);
  const std::vector<std::string>& all() const { return texts_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> texts_;
};

/// Amount of a row that is read, so that reports of many rows stay small.
struct RunDetail {
  std::size_t points = 400;            ///< of each curve: every k-th step
  std::size_t segments = 1500;         ///< of each class's timeline; 0: none
  std::size_t items = 400;             ///< groups of instructions; the smallest are put together
  std::size_t program_bytes = 0;    ///< of program text: lines of the groups that take the longest
};

/// The row's JSON for the page (report.js); docs/report.md says what it shows. Rows without archives, which were refused or only
/// predicted, have little of it. Figures are the archives' own, or those of compare's table. An archive that cannot be read in
/// part says so in "problems".
nlohmann::ordered_json run_data(const CompareOutcome& outcome, SharedTexts& texts, const RunDetail& detail);

/// Options and environment of a row's first run, flat: "config/precision", "environment/versions/cudnn".
std::map<std::string, std::string> settings_of(const CompareOutcome& outcome);

}  // namespace consist::launch
