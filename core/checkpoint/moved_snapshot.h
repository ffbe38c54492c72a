// A snapshot of ranks that lay otherwise: in another layout, or on other hosts. The hosts that are left have its files, their own
// and copies of those of lost ones; each fetches what its ranks lack.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_reader.h"
#include "core/checkpoint/file_exchange.h"
#include "core/checkpoint/tensor_parts.h"
#include "core/job/job.h"

namespace consist {

/// A host of a job, as snapshots see it.
struct SnapshotHost {
  std::vector<int> ranks;
  std::string name;
};

/// The elements that a rank needs, by the names of tensors.
using NeededRanges = std::map<std::string, std::vector<LocalRange>>;

/// All functions but the getters are called by every rank.
class MovedSnapshot {
 public:
  /// The snapshot `step` of `layout`, from the folders of snapshots on this host (equal for its ranks). Nothing if it is not whole:
  /// if some element of a tensor of which there is a part, or of those that are `named`, is nowhere to be found in a sound file.
  static std::optional<MovedSnapshot> open(JoinedJob& job, std::span<const SnapshotHost> hosts, std::size_t own,
                                           const std::vector<std::string>& folders, std::int64_t step, const std::string& layout,
                                           const std::vector<std::string>& named);

  const CheckpointState& state() const noexcept { return state_; }

  /// Brings what this host's ranks lack of what they need, and returns a checkpoint in `folder`, which is made, with these files
  /// and those that were here. `exchange` may be null on a single host. Throws UsageError where there is no room for them.
  Checkpoint gather(FileExchange* exchange, const NeededRanges& needed, const std::string& folder) const;

 private:
  struct File {
    CheckpointFile entry;
    std::vector<std::size_t> holders;  // hosts, ascending
    std::string here;                  // its path on this host; empty: not here
    std::map<std::string, std::string> parts;  // part_text_in(), by tensor
  };
  struct Transfer {
    std::string file;
    int from = 0, to = 0;  // ranks
  };
  MovedSnapshot(JoinedJob& job, std::span<const SnapshotHost> hosts, std::size_t own)
      : job_(&job), hosts_(hosts.begin(), hosts.end()), own_(own) {}

  void look_for_files(const std::vector<std::string>& folders, std::int64_t step, const std::string& layout);
  /// Leaves out files of this host that are damaged.
  void verify();
  void tell_files();
  bool is_whole(const std::vector<std::string>& named) const;
  TensorPart part(const File& file, const std::string& tensor) const;
  void check_memory(const std::vector<Transfer>& transfers, const std::string& folder) const;
  std::vector<std::string> lacking(const NeededRanges& needed) const;
  std::vector<Transfer> plan_transfers(const NeededRanges& needed) const;
  void transfer(FileExchange& exchange, std::vector<Transfer> left, const std::string& folder) const;
  std::size_t place() const;  // of this rank among those of its host

  JoinedJob* job_;
  std::vector<SnapshotHost> hosts_;
  std::size_t own_;
  CheckpointState state_;
  std::map<std::string, File> files_;  // of all hosts, by name
  Mesh mesh_;                          // of the ranks that wrote them
};

}  // namespace consist
