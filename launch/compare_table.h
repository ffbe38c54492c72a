// The table that a comparison ends in, for people and as columns of its archive.
#pragma once

#include <string>
#include <vector>

#include "launch/compare_rows.h"

namespace consist::launch {

/// Aligned text. Per model the fastest finished row is marked with *; PARITY is the relative difference of the final loss to the
/// first finished row of the same model. Rows that did not finish show their reason.
std::string comparison_text(const std::vector<CompareRow>& rows, const std::vector<CompareOutcome>& outcomes);

/// Writes the comparison's archive (core/archive/comparison.h) with links to `archives`, one per row; empty for rows that have
/// none.
void write_comparison_archive(const std::string& path, const std::vector<CompareRow>& rows,
                              const std::vector<CompareOutcome>& outcomes, const std::vector<std::string>& archives);

}  // namespace consist::launch
