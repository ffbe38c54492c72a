// The table that a comparison ends in, for people and as columns of its archive.
#pragma once

#include <string>
#include <vector>

#include "launch/compare/outcome.h"
#include "launch/compare/rows.h"

namespace consist::launch {

/// Aligned text of at most `columns` per line (0: any number): columns that do not fit stand in a second table below. Rows that
/// are the same program as another are not shown by themselves: that row is marked with =, and says below which it stands for.
/// Per model the row that is faster than all others is marked with *; PARITY is the relative difference of the final loss to the
/// first finished row of the same model. Rows that did not finish show their reason, all lines of it.
std::string comparison_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes, int columns = 0);

/// By row, the relative difference of its final loss to that of the first finished row of its model; NaN for rows without one,
/// and for those whose steps train on another number of tokens.
std::vector<double> parities(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

/// Names the rows of a model whose steps train on other numbers of tokens than its first row's, and what can be compared then;
/// empty if there are none.
std::string unequal_steps_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

/// Doubts about the figures, one line each: other work on the machine, products and clocks that ran unevenly, bounds that
/// could not be measured.
std::string warnings_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

/// Writes the comparison's archive (core/archive/comparison.h) with a link to the archive of every repeat. Reasons are whole.
void write_comparison_archive(const std::string& path, const std::vector<CompareRow>& rows,
                              const std::vector<CompareOutcome>& outcomes);

}  // namespace consist::launch
