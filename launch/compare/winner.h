// Finds the fastest row of a model, and says whether that can be told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/compare/outcome.h"
#include "launch/compare/rows.h"

namespace consist::launch {

/// The row's model; empty where rows have none.
std::string model_of(const CompareRow& row);

/// A row's values but the model: "ranks 2, precision bf16".
std::string choices_of(const CompareRow& row);

/// Finished rows of a model that were run themselves, the fastest first.
struct Ranking {
  std::vector<std::size_t> rows;
  std::size_t leaders = 0;  ///< so many of the first cannot be told apart from the fastest, itself among them
  std::string reason;       ///< why, if there are several
};

/// Two rows can be told apart if the 95% intervals of their speeds do not meet and no other work on the machine disturbed either;
/// simulated rows if their speeds differ by more than 2%.
Ranking rank_rows(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes, const std::string& model);

/// Rows that cannot be told apart from the fastest of their model, and the fastest, where twice as many repeats would tell them
/// apart if means and scatter stay what they are.
std::vector<std::size_t> contested_rows(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

/// The one row of the model that is faster than every other.
std::optional<std::size_t> winner_of(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes,
                                     const std::string& model);

}  // namespace consist::launch
