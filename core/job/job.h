// Joining a job: rank 0 listens, the others connect and prove that they know the job's token. Where a host has several ranks, one
// leads: the others of the host go on through it, so that rank 0 serves one connection a host.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "consist/job.h"
#include "core/job/agreed_token.h"

namespace consist {

/// The number of this process's rank, and where rank 0 listens. Made from the environment by job_address_from_environment().
struct JobAddress {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  /// Name or address of rank 0's host; rank 0 listens on loopback only if it is loopback. Empty: rank 0 tells it by the channel.
  std::string master_host = "127.0.0.1";
  std::uint16_t master_port = 0;
  int listen_fd = -1;  ///< rank 0 only: a listening socket made by the launcher, owned by the job from now on; -1: none
  int joined_fd = -1;  ///< a pipe of the launcher's, owned by the job from now on: this rank's number is written to it (int32)
                       ///< once all ranks have joined, from when on the others notice its death; -1: none
  int generation = 0;  ///< Job::generation()
  std::string machine;  ///< equal for ranks that reach one another by loopback; empty: this machine's network::machine_identity()
  std::string token;    ///< at least min_token_characters, unless size is 1 or there is a channel
  TokenChannel channel = TokenChannel::none;        ///< by which ranks agree on a token, and on master_host, if these are empty
  std::string start;                                ///< TokenChannel::host: as HostToken takes it
  std::chrono::milliseconds timeout{60'000};        ///< Job::timeout()
  std::chrono::milliseconds join_timeout{};         ///< for joining; 0: as long as `timeout`
  std::chrono::milliseconds join_progress{15'000};  ///< how often a rank that waits for others to join logs it

  std::chrono::milliseconds time_to_join() const noexcept { return join_timeout.count() > 0 ? join_timeout : timeout; }
};

/// Time that ranks which a scheduler starts wait for each other, if the user names none: hosts that still pull an image come
/// late. torchrun's ranks wait as long.
inline constexpr std::chrono::minutes default_join_timeout{10};

inline constexpr std::size_t min_token_characters = 16;
/// Longer waits are cut to this one, whoever asks for them.
inline constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 366);

/// A job as the trainer holds it: a Job that can be left.
class JoinedJob : public Job {
 public:
  /// The orderly end, for every rank: returns when all ranks have called it, after which no failure of another rank matters.
  /// Throws PeerError if a rank fails meanwhile or does not come within the timeout.
  virtual void leave(std::chrono::milliseconds timeout) = 0;
  /// This rank ends early by its own error: tells the others `reason`, which their PeerErrors quote. Does nothing after another
  /// failure. A job that is destroyed without leave() or fail() counts as failed.
  virtual void fail(std::string_view reason) noexcept = 0;
};

/// Returns when all ranks have joined; while that takes long, rank 0 logs which are missing, and the others that they wait.
/// Throws UsageError for an address that makes no sense, SystemError when rank 0 cannot listen, PeerError when other ranks, rank
/// 0 among them, cannot be reached or do not come within `time_to_join()`, or fail meanwhile. The control connection has a thread
/// of its own, which also serves the other ranks of the host where this one leads; on rank 0 a second one serves the others.
///
/// Rank 0 needs a file descriptor for each of the other hosts and of the other ranks of its own, and while they join one for each
/// rank: it raises its limit as far as it may, and warns where that is not enough.
std::unique_ptr<JoinedJob> join_job(const JobAddress& address);

}  // namespace consist
