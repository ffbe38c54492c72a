// Judges the rows of a comparison against one reference, look after look, while their runs go on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/command_line.h"
#include "launch/compare/outcome.h"
#include "launch/compare/rows.h"
#include "launch/verdict/verdict.h"

namespace consist::launch {

/// The newest verdict on a row.
struct Ruling {
  std::size_t row = 0;
  int looks = 0;
  Verdict verdict;
  /// With --slower: it can be told whether the row is slower by more; else: it is faster, slower or the same. Also true where
  /// more runs cannot change that the two are not comparable.
  bool decided = false;
};

class Referee {
 public:
  /// `reference`: the side that rows are judged against; without one it is the first row that finished. `until_sure`: seconds for
  /// which rows that are not decided are run again; 0: they are not.
  Referee(VerdictRequest request, std::optional<Side> reference, double until_sure);

  double until_sure() const noexcept { return until_sure_; }

  /// Judges the rows that are not decided, each at the level of its look (level_at_look()). Returns true if one is left that more
  /// runs may decide.
  bool look(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

  /// True of rows that more runs are wanted of: the undecided ones, and the row that is the reference.
  bool wants(std::size_t row) const;

  const std::vector<Ruling>& rulings() const noexcept { return rulings_; }
  /// Lines for under the table, each with its end; empty before the first look.
  std::string text(const std::vector<CompareRow>& rows) const;
  nlohmann::ordered_json json() const;
  /// That of --slower over all rows: 1 if one is slower, else 3 if one cannot be told.
  int exit_status() const;

 private:
  Side reference_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes) const;

  VerdictRequest request_;
  double until_sure_;
  std::optional<Side> reference_;
  std::optional<std::size_t> reference_row_;
  std::vector<Ruling> rulings_;
};

/// By --against and --until-sure of compare; nothing without them. Throws UsageError, also for options of a verdict without them.
std::optional<Referee> read_referee(const CommandLine& line);

}  // namespace consist::launch
