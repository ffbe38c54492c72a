// Rows of a comparison that were run elsewhere, and what differs between the machines and conditions of all its rows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/compare/outcome.h"
#include "launch/compare/rows.h"

namespace consist::launch {

/// Adds the runs of these archives as rows: each is the archive of a run, or that of a comparison, whose runs are all added. Runs
/// of one configuration on one machine are repeats of a row if they lie in one folder. Rows show the options that `rows` vary;
/// where there are no rows, the options of the configuration that differ between the archives. Where machines differ, all rows
/// get the choice "machine": the name of the device, or of the host where devices are the same; where rows still look alike, also
/// "label". Throws SystemError or DataError for what cannot be read, UsageError if nothing is added.
void join_archives(const std::vector<std::string>& archives, std::vector<CompareRow>& rows,
                   std::vector<CompareOutcome>& outcomes);

/// A setting or property in which the runs of the rows differ.
struct Condition {
  std::string name;  ///< "versions/onednn", "learning_rate"
  std::vector<std::pair<std::string, std::vector<std::string>>>
      values;  ///< each with the labels of the rows that have it; at least two
};

/// Differences between the runs' configurations and environments that no column of the table shows, by name. `configurations` as
/// in conditions_text().
std::vector<Condition> conditions_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                                     bool configurations);

/// Differences between the runs' configurations and environments that no column of the table shows, one line each; empty if there
/// are none. `configurations`: also what their configurations say (rows of one command differ only in what it lists).
std::string conditions_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                            bool configurations);

}  // namespace consist::launch
