// The job: the ranks that train together, seen from one of them. A small key-value store at rank 0 for rendezvous, and the place
// where every rank learns that another one died or is stuck. The size of a job is fixed and a failure ends it on all ranks;
// nothing is retried: a new job resumes from the last checkpoint (docs/jobs.md). Processes without the job's token are refused.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "consist/export.h"

namespace consist {

/// THREADS: any. Every wait has a timeout and ends at once when the job fails.
class CONSIST_API Job {
 public:
  virtual ~Job();
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual int local_rank() const noexcept = 0;   ///< among the ranks on this host
  virtual int local_size() const noexcept = 0;
  virtual std::string_view host() const noexcept = 0;   ///< this host's name
  /// The secret shared by the ranks of this job; transports authenticate their connections with it. Never logged.
  virtual std::string_view token() const noexcept = 0;

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
