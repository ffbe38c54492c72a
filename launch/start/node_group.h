// The launchers of a job's machines, which agree on what their ranks do.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/job/job.h"
#include "launch/start/restart_policy.h"

namespace consist::launch {

/// This machine's place among those of a job.
struct NodeOptions {
  int nodes = 1;
  int node = 0;
  std::string host;  ///< of the launcher of node 0, which listens there
  std::uint16_t port = 0;
  std::string token;                          ///< at least min_token_characters
  std::chrono::milliseconds timeout{60'000};  ///< silence after which a machine counts as lost
};

/// A job of its own (core/job), of one launcher a machine. It ends with any of them, and is formed again once another launcher
/// has come in that one's place. Used from one thread.
class NodeGroup {
 public:
  explicit NodeGroup(NodeOptions options) : options_(std::move(options)) {}

  /// Returns when the launchers of all machines have come, or false once `stopped`, which is asked often, says so. Throws
  /// SystemError where they do not within default_join_timeout, and what join_job() does.
  bool form(const std::function<bool()>& stopped);
  bool is_formed() const noexcept { return job_ != nullptr; }
  /// After a PeerError.
  void dissolve() { job_.reset(); }

  /// A launcher's part in a generation, and what all make of it.
  struct Start {
    int ranks = 0;           ///< of this machine; then of all
    int generation = 0;      ///< the next one, as far as it is known here; then the largest
    int used = 0;            ///< restarts, likewise
    std::string nonce;       ///< node 0's
    std::uint16_t port = 0;  ///< of rank 0, which is node 0's
    int first_rank = 0;      ///< of this machine
  };
  /// Called by all. Throws PeerError where a launcher is lost, as do the others.
  Start agree_on_start(const Start& mine);

  /// The end of a generation.
  struct End {
    int status = 0;  ///< 0: all ranks have finished
    RankFailure failure;
  };
  /// Called by all when their ranks have ended: the end that counts for all.
  End agree_on_end(const End& mine);
  /// Called by all: what node 0 says.
  std::string hear(const std::string& text);
  /// The orderly end, of all.
  void leave();

 private:
  NodeOptions options_;
  std::unique_ptr<JoinedJob> job_;
  int calls_ = 0;
};

}  // namespace consist::launch
