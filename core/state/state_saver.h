// Saving the state of a training: to the disk, and into the host's memory where the next ranks find it after a failure.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_writer.h"
#include "core/checkpoint/snapshots.h"
#include "core/job/job.h"
#include "core/state/background_work.h"
#include "core/state/owned_tensors.h"
#include "core/state/staged_tensors.h"

namespace consist {

/// One per rank and run, used from the trainer's thread. Where the host has memory for a copy of the state, it is written beside
/// training: save() then returns once the copy is made. A checkpoint and a snapshot are the same files in different places; both
/// are complete or not there, whatever ends the ranks (CheckpointWriter).
class StateSaver {
 public:
  /// Checkpoints are kept on the disk by `disk`, which rank 0 has where there is a folder for them. `snapshots`: null: none.
  /// `most_share`: Continuation::snapshot_share.
  StateSaver(JoinedJob& job, std::unique_ptr<CheckpointWriter> disk, std::unique_ptr<Snapshots> snapshots, double most_share = 0);
  ~StateSaver();

  /// Called by every rank before the first save(), with what it will save: takes memory for the copy. With a folder for
  /// snapshots, throws UsageError where the ranks of this host lack memory for the copy and two snapshots; hosts keep each
  /// other's if all have the memory for that, else rank 0 warns. Without snapshots `beside` says if checkpoints are to be written
  /// beside training; returns false if the host lacks memory for that.
  bool prepare(const std::shared_ptr<Device>& device, const OwnedTensors& tensors, bool beside);

  enum class Where {
    in_memory,              ///< a snapshot; while some rank still writes the one before or it is too soon, all leave it out
    in_memory_for_certain,  ///< waits for the end of the save before instead
    on_disk,                ///< a snapshot and a checkpoint, after the end of the save before
  };
  enum class Outcome { saved, too_soon, still_writing };  ///< the last two: a snapshot was left out
  /// Called by every rank: saves `of_host` as a snapshot, if there is a folder for them, and a checkpoint of `mine`, which are
  /// among them. Throws what an earlier save or this one met.
  Outcome save(const OwnedTensors& of_host, const OwnedTensors& mine, CheckpointState state, Where where);
  /// Throws what a save that has ended met; does not wait.
  void check() { work_.check(); }
  /// Waits for the end of the last save; throws what it met.
  void finish() { work_.finish(); }
  /// Waits for the end of the last save, which the job's failure ends early. Returns what it met; null: nothing.
  std::exception_ptr settle() noexcept { return work_.settle(); }

  struct Saved {
    std::int64_t step = 0;
    std::int64_t bytes = 0;  ///< of all ranks, on rank 0; elsewhere 0
  };
  /// Checkpoints on the disk that are complete and were not returned before.
  std::vector<Saved> take_saved();

 private:
  struct Work {
    CheckpointState state;
    OwnedTensors of_host, mine;
    bool to_disk = false;
  };
  void write(const Work& work);
  bool is_too_soon() const;
  void prepare_snapshots(double of_host);

  JoinedJob& job_;
  std::unique_ptr<CheckpointWriter> disk_;  // of rank 0
  std::unique_ptr<Snapshots> snapshots_;
  std::unique_ptr<StagedTensors> copy_;  // null: everything is written at once
  const double most_share_;
  double copied_seconds_ = 0;  // of the last copy
  std::chrono::steady_clock::time_point copied_;
  std::mutex mutex_;                     // of saved_
  std::vector<Saved> saved_;
  BackgroundWork work_;  // ends before what it uses
};

}  // namespace consist
