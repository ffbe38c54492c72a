// Snapshots: checkpoints in the memory of hosts. Each host has what its own ranks need, and may keep that of the host before it
// in the order of ranks, so that a host's snapshot survives the loss of the host. The scheme is that of GEMINI (SOSP 2023), with
// one copy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_reader.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/checkpoint/file_exchange.h"
#include "core/checkpoint/moved_snapshot.h"
#include "core/job/job.h"

namespace consist {

/// The host that keeps the snapshots of one of several hosts: the other one of its pair; of an odd number the last three are a
/// ring. One host of each of these groups may be lost at a
/// time.
CONSIST_API std::size_t keeper_of(std::size_t host, std::size_t hosts);
/// The inverse: the host whose snapshots are kept there.
CONSIST_API std::size_t kept_by(std::size_t host, std::size_t hosts);

/// A rank's part in the snapshots of its job. All functions but the getters are called by every rank; from one thread at a time.
class CONSIST_API Snapshots {
 public:
  static constexpr int at_once = 2;  ///< of each host: one that is whole, and one that is being written

  /// `folder`, of this host and equal for its ranks, outlives the job; what is in it is of earlier ranks of the same run. Throws
  /// as CheckpointWriter.
  Snapshots(JoinedJob& job, std::string folder);

  const std::string& folder() const noexcept { return folder_; }
  /// By the bytes that each host saves, those of the host whose snapshots are to be kept here; 0 on a single host.
  double bytes_of_neighbour(double of_host) const;
  /// From now on save() keeps copies, if there are several hosts and `fits` says on all of them that they have the memory.
  /// Returns the hosts that lack it, in the order of their ranks.
  std::vector<std::string> keep_copies(bool fits);

  /// The newest snapshot in this layout (CheckpointState::layout) of which each host has its own or its keeper a copy, which is
  /// brought here then. Each rank verifies the file that it wrote; nothing if one is not sound, of which rank 0 warns. Where
  /// there is none, the newest of ranks that lay otherwise, in which no element is lacking of the tensors that are `named`: then
  /// is_moved(), and gather() makes what can be read of it. Nothing if there is none either.
  std::optional<Checkpoint> find(const std::string& layout, const std::vector<std::string>& named);
  bool is_moved() const noexcept { return moved_.has_value(); }
  /// Brings what this host's ranks lack of what they need. The checkpoint is there until drop_gathered().
  Checkpoint gather(const NeededRanges& needed);
  void drop_gathered();
  /// Removes snapshots of later steps: a run that goes on after `step` makes them again.
  void forget_later(std::int64_t step);

  /// Saves the tensors of this rank (none: no file) as a part of its host's snapshot; `state.files` is filled in here. The
  /// snapshots before stay until those of all hosts are complete, copies among them, so that there is a step of which all hosts
  /// have one. Throws as save_checkpoint().
  void save(CheckpointState state, std::span<const TensorSource> tensors, const std::map<std::string, std::string>& parts);

 private:
  using Ranks = std::vector<int>;
  using Host = SnapshotHost;
  const Host& host() const { return hosts_[own_]; }
  std::string folder_of_copies() const;
  std::size_t place() const;  // of this rank among those of its host
  std::optional<Checkpoint> find_in_place(const std::string& layout);
  std::optional<Checkpoint> find_moved(const std::string& layout, const std::vector<std::string>& named);
  std::optional<Checkpoint> verified(std::int64_t step);
  std::vector<std::string> folders() const;
  void copy(const CheckpointState& state, const std::optional<CheckpointFile>& mine);
  void fetch(std::size_t lacking, std::int64_t step);
  void send_copy(const Ranks& to, std::int64_t step);
  void receive_copy(const CheckpointState& copied);

  JoinedJob& job_;
  const std::string folder_;
  std::vector<Host> hosts_;  // in the order of their first ranks
  std::size_t own_ = 0;      // among hosts_
  bool keeps_copies_ = false;
  std::unique_ptr<CheckpointWriter> writer_, copies_;  // of the first rank of a host
  std::unique_ptr<FileExchange> exchange_;             // with several hosts
  std::optional<MovedSnapshot> moved_;
  bool has_former_copies_ = true;  // of hosts that are paired otherwise now
};

}  // namespace consist
