// Values that a run that goes on takes over from its archive.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/archive/reader.h"

namespace consist {

/// The rows, evaluations and events of an archive.
struct ArchivePast {
  std::vector<std::string> columns;       ///< names; "step" first
  std::vector<std::vector<double>> rows;  ///< a value per column
  std::vector<ArchivedEvaluation> evaluations;
  std::vector<ArchivedChoices> experts;
  std::vector<ArchiveEvent> events;  ///< all of them

  bool empty() const noexcept { return rows.empty() && events.empty(); }
  /// The last row's value; NaN without a row or such a column.
  double last(const std::string& column) const;
};

/// The rows, evaluations and experts' choices of the archive at `path` up to step `last_step` (later ones are of work that was
/// lost), and all events. Throws as ArchiveReader does.
ArchivePast read_past(const std::string& path, std::int64_t last_step);

/// Checks that the archive at `path` is of the run described by `config` (RunConfig::to_json), so that --resume may go on in it.
/// Options for which `may_differ` is true, by name ("trace", "csv.file"), may differ, and what a device settled by measuring.
/// `--transport auto` goes on in the archive of any transport. An option that the archive, written by an earlier version, does not know had the value that it has in `defaults`, a configuration as well.
/// Throws UsageError naming each option that differs with both values, DataError if the file is no archive.
void check_same_run(const std::string& path, const std::string& config, const std::string& defaults,
                    const std::function<bool(const std::string&)>& may_differ);

}  // namespace consist
