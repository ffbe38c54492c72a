// The archive of a comparison: a table with a row per run, and links to the runs' own archives.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace consist {

/// A cell: a number (NaN: none) or a text.
using ComparisonValue = std::variant<double, std::string>;

struct ComparisonColumn {
  std::string name;  ///< "tokens_per_second"
  std::string unit;  ///< "tokens/s"; empty for texts
};

struct ComparedRun {
  std::string label;                    ///< unique, without "/": "qwen3-0.6b ddp socket bf16"
  std::string archive;                  ///< path of the run's archive; empty for a run that never started
  std::vector<ComparisonValue> values;  ///< one per column; all values of a column are of one kind
  std::vector<std::pair<std::string, std::string>> repeats = {};  ///< labels and archives of further runs of the same
};

/// Writes an HDF5 file: /summary holds "run" (the labels) and each column as a 1-D dataset, in the given order; /runs/<label> is
/// an external link to the run's archive, relative to the folder of `path`, so that the files can be moved together. Replaces an
/// existing file in one go. Throws ProgramError for runs that break the rules above and SystemError naming `path` if it cannot be
/// written.
void write_comparison(const std::string& path, const std::vector<ComparisonColumn>& columns,
                      const std::vector<ComparedRun>& runs);

/// True if the file at `path` is a comparison, false also for a file that is no archive. Throws SystemError if there is no such
/// file.
bool is_comparison(const std::string& path);

/// The archives that the comparison at `path` links to, by label, as paths that can be opened from here; nothing if the file is
/// no comparison. Throws SystemError if there is no such file, DataError if it cannot be read.
std::vector<std::pair<std::string, std::string>> linked_archives(const std::string& path);

}  // namespace consist
