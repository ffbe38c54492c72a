// The launchers of a job's machines, which agree on what their ranks do.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "launch/start/restart_policy.h"
#include "launch/start/roll_call.h"

namespace consist::launch {

/// This machine's place among those of a job.
struct NodeOptions {
  int nodes = 1;
  int node = 0;
  std::string host;  ///< of the launcher of node 0, which listens there
  std::uint16_t port = 0;
  std::string token;                          ///< at least min_token_characters
  std::chrono::milliseconds timeout{60'000};  ///< silence after which a machine counts as lost
  int least = 0;                              ///< nodes with which the job goes on where others are lost; 0: all
  /// For a launcher in the place of a lost one, before the job goes on without it.
  std::chrono::milliseconds wait{20'000};
  /// For launchers of the last group that are not known to be lost: their ranks may still be ending.
  std::chrono::milliseconds wait_for_others{20'000};
  /// Numbers of nodes from `least` to `nodes` with which the job cannot go on, and why.
  std::map<int, std::string> unfit = {};

  bool varies() const noexcept { return least > 0 && least < nodes; }
};

/// A job of its own (core/job), of one launcher a machine. It ends with any of them, and is formed again once another launcher
/// has come in that one's place, or, where the nodes may be fewer (NodeOptions::varies()), without it. Used from one thread.
class NodeGroup {
 public:
  explicit NodeGroup(NodeOptions options) : options_(std::move(options)) {}

  /// Returns when the launchers of all machines have come, or false once `stopped`, which is asked often, says so. Throws
  /// SystemError where they do not within default_join_timeout, and what join_job() does. Where the nodes may be fewer: after a
  /// loss those that are left make the group once NodeOptions::wait is over, if they are as many as fit. Then throws NotNeeded,
  /// too.
  bool form(const std::function<bool()>& stopped);
  bool is_formed() const noexcept { return job_ != nullptr; }
  /// After a PeerError: the member of this number is lost. -1: none is, all are to meet again.
  void dissolve(int lost = -1);
  /// The job cannot go on with as many nodes as there are, since its ranks were refused there.
  void refuse_number(const std::string& why) { options_.unfit.emplace(static_cast<int>(members_.size()), why); }
  bool is_whole() const noexcept { return members_.size() == static_cast<std::size_t>(options_.nodes); }
  /// The node that this member of the group is.
  int node_of(int member) const;
  /// Ascending; those of the last group where there is none.
  const std::vector<int>& members() const noexcept { return members_; }

  /// On node 0, while a generation runs: what to poll() for, and whether more nodes could go on than are there. To be asked
  /// often.
  void watch(std::vector<pollfd>& entries) const;
  bool may_grow();

  /// A launcher's part in a generation, and what all make of it.
  struct Start {
    int ranks = 0;           ///< of this machine; then of all
    int generation = 0;      ///< the next one, as far as it is known here; then the largest
    int used = 0;            ///< restarts, likewise
    std::string nonce;       ///< node 0's
    int last = -1;           ///< the generation that ran here last; then the last one that ran anywhere
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
  using Stopped = std::function<bool()>;
  std::optional<Crew> meet(const Stopped& stopped, network::Socket& listener);
  std::optional<Crew> call_roll(const Stopped& stopped, network::Socket& listener);
  bool is_enough(const std::vector<int>& present, network::Deadline began) const;
  bool fits(std::size_t nodes) const;
  std::string why_not(std::size_t nodes) const;
  bool join(JobAddress address, const Stopped& stopped);
  bool form_varying(const Stopped& stopped);
  JobAddress address() const;

  NodeOptions options_;
  std::optional<RollCall> roll_call_;  // of node 0, where the nodes may be fewer
  std::vector<int> members_;           // nodes
  std::vector<int> expected_;          // of them, those that are not known to be lost
  int lost_ = 0;                       // known to be
  std::unique_ptr<JoinedJob> job_;
  int calls_ = 0;
};

}  // namespace consist::launch
