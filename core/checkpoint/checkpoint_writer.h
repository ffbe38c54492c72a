// Writing checkpoints so that a kill, a crash or a full disk at any moment leaves the earlier ones as they were.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "consist/export.h"
#include "core/checkpoint/checkpoint_state.h"
#include "core/weights/safetensors.h"

namespace consist {

/// Held by rank 0 of a run, which has the folder to itself meanwhile. Used from one thread at a time. The order of a checkpoint:
///   rank 0: begin(step)
///   every rank that has something to write: write_checkpoint_file(path of begin(), checkpoint_file_name(rank), its tensors)
///   rank 0, with what those calls returned: commit(state)
/// save_checkpoint() does this over a job.
class CONSIST_API CheckpointWriter {
 public:
  /// Makes the folder if it is not there and removes what a killed writer left unfinished. After each commit the newest `keep`
  /// (at least 1) checkpoints stay. Throws UsageError if another run has the folder, SystemError if it cannot be made or written.
  CheckpointWriter(std::string folder, int keep);
  ~CheckpointWriter();  ///< removes a checkpoint that was begun and not committed
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Makes the folder to write to, "<folder>/step-00000040.partial", and returns its path. Throws SystemError.
  std::string begin(std::int64_t step);
  /// Writes state.json, gives the folder its name (replacing a checkpoint of the same step) and removes the oldest beyond `keep`;
  /// all on the disk on return. `state.step` is that of begin(). Throws DataError if a listed file is not there with its size
  /// (ranks that do not share the file system), SystemError if the system refuses; the unfinished folder is removed then.
  void commit(const CheckpointState& state);
  /// Removes all checkpoints but the one that was committed last.
  void keep_newest();
  /// Removes what was begun and not committed; nothing if there is none.
  void abandon() noexcept;

  const std::string& folder() const noexcept { return folder_; }

 private:
  void remove_partial_folders();
  void prune(std::int64_t newest, int keep);

  std::string folder_;
  int keep_;
  int lock_ = -1;
  std::int64_t step_ = -1;
  std::string partial_;  // empty: none begun
};

/// Writes the tensors to <partial_folder>/<name>, with `parts` (see tensor_parts.h) as metadata; the file is complete on the disk
/// on return. `threads` compute its digest beside this one. Throws what write_safetensors throws; a file that failed is removed.
CONSIST_API CheckpointFile write_checkpoint_file(const std::string& partial_folder, const std::string& name,
                                                 std::span<const TensorSource> tensors,
                                                 const std::map<std::string, std::string>& parts = {}, int threads = 1);

}  // namespace consist
