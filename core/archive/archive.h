// The results archive of a run: one HDF5 file. docs/archive.md is the schema.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "consist/observer.h"

namespace consist {

/// The version of archives that this program writes; it reads all from 1 on.
inline constexpr std::int32_t archive_version = 2;

/// A quantity that is recorded once a step.
struct Column {
  std::string name;       ///< "loss": the dataset /steps/loss
  std::string unit;       ///< "s", "B", "tokens/s", "1"
  std::string long_name;  ///< one line for people
};

/// A row of /evaluations.
struct ArchivedEvaluation {
  std::int64_t step = 0;       ///< after this step, counted from 1
  double loss = 0;             ///< in the unit of the archive's losses
  std::int64_t sequences = 0;  ///< over which the loss is the mean
  double seconds = 0;          ///< wall time
  double time = 0;             ///< when it ended: seconds since the epoch
  std::vector<OwnMetricValue> metrics = {};  ///< columns of Archive::define_evaluations()
};

/// A row of /experts.
struct ArchivedChoices {
  std::int64_t step = 0;              ///< counted from 1
  std::vector<std::int32_t> choices;  ///< that fell on each expert in the step: [routers, experts]
  std::size_t experts = 0;            ///< of a row of choices, as ArchiveReader reads it
};

/// Checks early, without touching it, that an archive could be created at `path`. Throws UsageError if something is there
/// already that may not be replaced (or is no file, or is being written by a run), SystemError if its folder is missing or may
/// not be written.
void check_archive_path(const std::string& path, bool overwrite);

/// Writes the archive of a run. Whatever append() or event() has returned from is in the file and readable, even if the process
/// is killed right after, or while it writes the next. Used from one thread at a time. Every member throws SystemError naming the
/// file if the system refuses (disk full); an archive that has thrown refuses further writes, and what it held before stays
/// readable.
class Archive {
 public:
  /// Creates the file with status "running", and locks it until finish() or the end of the process, so that no other Archive
  /// writes it meanwhile; readers are not kept out. It has the name "<path>.partial-<pid>" until define_steps(), finish() or the
  /// destructor: what has the name `path` is readable at any moment. `overwrite` replaces an archive or an empty file, also
  /// behind a link. Throws UsageError if there is one and `overwrite` is false, if it is no archive, or if it is being written;
  /// SystemError if it cannot be written.
  Archive(const std::string& path, bool overwrite);
  ~Archive();  ///< without finish() the status stays "running", which readers know to be "cut off"
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  /// Stores a JSON text under "/config", "/environment", "/topology", "/program", "/start", "/comm", "/result", "/profile" or
  /// "/evaluation"; again replaces it.
  void text(const std::string& path, const std::string& json);
  /// Stores a JSON text of any length compressed, under "/timeline" or "/programs", once.
  void packed_text(const std::string& path, const std::string& json);
  /// States the columns of /steps, once, before the first append(). The first is "step", stored as int64; the others are float64.
  void define_steps(const std::vector<Column>& columns);
  /// Adds a row: one value per column, in their order.
  void append(std::span<const double> values);
  /// Before define_steps(): makes /experts, for routers in these layers of up to `experts` experts.
  void define_experts(const std::vector<std::int64_t>& layers, std::int64_t experts);
  /// Adds a row to /experts, of as many choices as define_experts() said.
  void experts(const ArchivedChoices& row);
  /// Before define_steps(): adds columns to /evaluations, float64. Its losses have this unit (Loss::unit).
  void define_evaluations(std::span<const Column> columns, const std::string& loss_unit);
  /// Adds a row to /evaluations. A column for which it has no value becomes NaN.
  void evaluation(const ArchivedEvaluation& row);
  /// Adds a row to /events. `time`: seconds since the epoch; `kind`: one word, up to 32 bytes; `text`: cut to 1024 bytes.
  void event(double time, const std::string& kind, const std::string& text);
  /// Sets status ("finished", "failed" or "stopped") and reason (cut to 1024 bytes), and closes the file. Nothing may follow.
  void finish(const std::string& status, const std::string& reason);

  /// Gives the file, at once and whole, the name `path` in the same folder, in place of what has it. Throws SystemError.
  void rename(const std::string& path);

  const std::string& path() const noexcept { return path_; }

 private:
  struct File;
  std::string path_;
  std::unique_ptr<File> file_;
};

}  // namespace consist
