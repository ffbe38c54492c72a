// Reads the results archive of a run, also of one that is still running or was killed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/archive/archive.h"

namespace consist {

struct ArchiveEvent {
  double time = 0;  ///< seconds since the epoch
  std::string kind;
  std::string text;
};

/// Shows the file as it was at the last flush before it was opened. Used from one thread at a time. Every member throws DataError
/// naming the file and the part of it that cannot be read.
class ArchiveReader {
 public:
  /// Throws SystemError if there is no such file or it may not be read; DataError if it is cut off or no archive of a known
  /// version.
  explicit ArchiveReader(const std::string& path);
  ~ArchiveReader();
  ArchiveReader(const ArchiveReader&) = delete;
  ArchiveReader& operator=(const ArchiveReader&) = delete;

  /// "running", "finished", "failed" or "stopped"; "cut off" where the file says "running" and the process that wrote it is gone.
  /// That is known of runs of this host, on file systems with locks.
  std::string status() const;
  std::string reason() const;  ///< of a run that failed, stopped or was cut off; empty otherwise
  /// The JSON text at "/config", ...; empty if it was never written.
  std::string text(const std::string& path) const;
  /// The JSON text at "/timeline" or "/programs"; empty if it was never written, as in archives of version 1.
  std::string packed_text(const std::string& path) const;
  std::int32_t version() const noexcept { return version_; }
  /// Names of the columns of /steps, in alphabetical order; empty before any was defined.
  std::vector<std::string> columns() const;
  std::string unit(const std::string& column) const;
  /// The unit of losses, of steps or else of evaluations; Loss::default_unit if they have none.
  std::string loss_unit() const;
  /// Values of /steps/<name>, one for each row that is complete. Throws DataError if there is no such column.
  std::vector<double> column(const std::string& name) const;
  /// The same; empty if there is no such column, as of sensors that a device does not have.
  std::vector<double> column_if_any(const std::string& name) const;
  std::vector<ArchiveEvent> events() const;
  /// Rows of /experts that are complete; none in archives without experts.
  std::vector<ArchivedChoices> experts() const;
  /// Rows of /evaluations that are complete; none in archives of earlier versions of this program, which had no such table.
  std::vector<ArchivedEvaluation> evaluations() const;

 private:
  struct File;
  std::string path_;
  std::unique_ptr<File> file_;
  std::int32_t version_ = 0;
};

}  // namespace consist
