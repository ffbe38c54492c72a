// The job: the ranks that train together, seen from one of them. Collectives and a small key-value store for what ranks tell one
// another, and the place where every rank learns that another one died or is stuck. The size of a job is fixed and a failure ends
// it on all ranks; nothing is retried: a new job resumes from the last checkpoint (docs/jobs.md). Processes without the job's
// token are refused.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"

namespace consist {

enum class ReduceOp { sum, max, min };

/// THREADS: any. Every wait has a timeout and ends at once when the job fails.
class CONSIST_API Job {
 public:
  virtual ~Job();
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual int local_rank() const noexcept = 0;   ///< among the ranks on this host
  virtual int local_size() const noexcept = 0;
  virtual std::string_view host() const noexcept = 0;   ///< this host's name
  /// The ranks on this host, ascending, this one among them. Pods of one machine count as hosts of their own.
  virtual std::span<const int> host_ranks() const noexcept = 0;
  /// Counts the memberships of the job: 0 for the ranks that it began with. A message of another generation is refused.
  virtual int generation() const noexcept = 0;
  /// The secret shared by the ranks of this job; transports authenticate their connections with it. Never logged.
  virtual std::string_view token() const noexcept = 0;

  // Collectives of `members`, ranks in any order; none: of all ranks. Members make the same calls in the same order under one
  // name, which may be used again. Bytes may have any length. At the timeout the job fails: each PeerError names the rank that
  // the others wait for, the collective, and the ranks that have not come.

  /// Returns the bytes of all members, in their order, to the first of them. The others get nothing and do not wait.
  virtual std::vector<std::string> gather(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                                          std::span<const int> members = {}) = 0;
  /// Returns the bytes of the first member, which does not wait; `bytes` of the others are ignored.
  virtual std::string broadcast(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                                std::span<const int> members = {}) = 0;
  /// Returns the bytes of all members, in their order, to each of them.
  std::vector<std::string> all_gather(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                                      std::span<const int> members = {});
  /// Returns the sum, largest or smallest of each number over all members. Sums are made in the members' order, so that results
  /// are equal to the bit. Throws ProgramError where members give different counts of numbers.
  std::vector<double> reduce(std::string_view name, const std::vector<double>& numbers, ReduceOp how,
                             std::chrono::milliseconds timeout, std::span<const int> members = {});

  /// Stores `value` at rank 0 under `key`, in place of an earlier one.
  virtual void put(std::string_view key, std::string_view value) = 0;
  /// Waits until some rank has put the key. Throws SystemError after the timeout, PeerError if the job failed.
  virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
  /// Returns when every rank has entered the barrier of that name (a name is used once).
  virtual void barrier(std::string_view name, std::chrono::milliseconds timeout) = 0;

  /// True once some rank is known to have failed. Cheap: transports poll it in their waits.
  virtual bool failed() const noexcept = 0;
  /// Throws the job's PeerError if failed().
  virtual void check() const = 0;
  /// For a transport whose connection to `peer` broke or timed out: asks the others which rank is to blame, waits briefly for the
  /// answer, and throws PeerError naming the rank, host and last instruction of the one to blame.
  [[noreturn]] virtual void blame(int peer, std::string_view what) = 0;
  /// Sets the function that describes what this rank is doing, for such reports. Set once; the job's own thread calls it, and it
  /// must not block.
  virtual void set_progress(std::function<std::string()> progress) = 0;

  /// Longest wait of a collective for a peer (--timeout).
  virtual std::chrono::milliseconds timeout() const noexcept = 0;
};

}  // namespace consist
