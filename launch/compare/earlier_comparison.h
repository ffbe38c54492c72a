// The comparison that a folder holds already: what of it a new one would lose.
#pragma once

#include <span>
#include <string>

#include "launch/compare/rows.h"

namespace consist::launch {

/// Before comparison.h5 at `path` is written, whose folder is there: it becomes a file, or takes the place of a comparison of no
/// other rows, which the archives in the folder give again. Throws UsageError for what may be replaced by `overwrite` alone: a
/// file that is no comparison, and a comparison with rows of this folder that are neither among `rows` nor among the archives
/// `added`; and as check_output().
void check_summary(const std::string& path, bool overwrite, std::span<const CompareRow> rows, std::span<const std::string> added);

}  // namespace consist::launch
