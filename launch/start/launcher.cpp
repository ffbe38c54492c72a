#include "launch/start/launcher.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/socket.h"
#include "consist/text.h"
#include "core/base/sha256.h"
#include "core/job/agreed_token.h"
#include "core/job/rank_board.h"
#include "launch/cli/exit_status.h"
#include "launch/start/generation.h"
#include "launch/start/launcher_signals.h"
#include "launch/start/restart_policy.h"
#include "launch/start/snapshot_folder.h"

namespace consist::launch {
namespace {

constexpr int max_ranks = 1024;

/// Starts generation after generation.
class Launcher {
 public:
  Launcher(int ranks, const std::vector<std::string>& arguments, const LaunchOptions& options)
      : ranks_(ranks), arguments_(arguments), options_(options), policy_(options.max_restarts) {
    signal(SIGPIPE,
           SIG_IGN);  // output without a reader (`| head`) ends neither this process nor, by inheriting it, the ranks
    if (options.max_restarts > 0) board_.emplace(RankBoard::create(ranks));
    if (options.max_restarts > 0 && options.snapshots) snapshots_.emplace();
    if (options.nodes.nodes > 1) nodes_.emplace(options.nodes);
  }

  int run() try {
    for (;;) {
      if (nodes_ && !nodes_->is_formed() && !nodes_->form([this] { return asked_to_stop(); })) {
        snapshots_.reset();
        _exit(exit_stopped);  // beside the thread that waits for others
      }
      const std::optional<int> status = nodes_ ? generation_of_nodes() : generation_here();
      if (status) return *status;
      if (asked_to_stop()) return exit_stopped;
    }
  } catch (const NotNeeded& not_needed) {
    std::fprintf(stderr, "consist launch: %s\n", printable(not_needed.why).c_str());
    return 0;
  }

 private:
  LocalJob local_job() const {
    return {.ranks = ranks_,
            .token = new_token(),
            .generation = number_,
            .board = board_ ? board_->fd() : -1,
            .snapshots = snapshots_ ? snapshots_->path() : ""};
  }
  bool replaces() const { return board_ && policy_.used() < policy_.most(); }

  /// Runs the ranks once. Returns the status of the job; nothing if it is to be started anew.
  std::optional<int> generation_here() {
    network::Socket listener = network::listen_on("127.0.0.1", 0);
    LocalJob job = local_job();
    job.port = network::local_endpoint(listener).port;
    job.listener = listener.fd();
    Generation generation(job, arguments_, options_, signals_, replaces());
    listener.close();
    const int status = generation.run();
    if (status == 0 || !board_) return status;
    const RankFailure failure = generation.failure(*board_);
    const RestartPolicy::Decision decision = policy_.decide(failure, generation.stopping());
    if (!decision.again) {
      say_end(failure.text(), decision.why_not);
      return status;
    }
    go_on(failure, policy_.used());
    return std::nullopt;
  }

  /// The same of the ranks of all machines, of which these are some.
  std::optional<int> generation_of_nodes() {
    try {
      const bool leads = options_.nodes.node == 0;
      network::Socket listener = leads ? network::listen_on("", 0) : network::Socket();
      LocalJob job = local_job();
      const NodeGroup::Start start =
          nodes_->agree_on_start({.ranks = ranks_,
                                  .generation = number_,
                                  .used = policy_.used(),
                                  .nonce = job.token,
                                  .last = last_,
                                  .port = leads ? network::local_endpoint(listener).port : std::uint16_t{0}});
      number_ = start.generation;
      policy_.set_used(start.used);
      job.token = sha256_of(options_.nodes.token + " " + start.nonce);  // a secret is never sent
      job.generation = number_;
      job.port = start.port;
      job.listener = listener ? listener.fd() : -1;
      job.first_rank = start.first_rank;
      job.of_all = start.ranks;
      job.master = options_.nodes.host;
      job.machine = "node " + std::to_string(options_.nodes.node);
      begin_among_nodes(start, job);
      const bool may_grow = leads && options_.nodes.varies() && snapshots_;
      Generation generation(job, arguments_, options_, signals_, replaces(), may_grow ? &*nodes_ : nullptr,
                            board_ ? &*board_ : nullptr);
      listener.close();
      const int status = generation.run();
      return end_of_nodes(status, generation);
    } catch (const PeerError& lost) {
      return after_loss(lost);
    }
  }

  /// Notes who takes part in this generation.
  void begin_among_nodes(const NodeGroup::Start& start, LocalJob& job) {
    // Ranks have gone on without this node: what it keeps is of steps that others have made again.
    if (snapshots_ && last_ >= 0 && last_ < start.last) snapshots_->clear();
    last_ = start.generation;
    if (!options_.nodes.varies()) return;
    job.at_most = ranks_ * options_.nodes.nodes;
    const std::vector<int> before = std::exchange(former_, nodes_->members());
    if (before.empty() || before == former_) return;
    const auto lacking = [](const std::vector<int>& all, const std::vector<int>& some) {
      std::string text;
      for (const int node : all) {
        if (std::ranges::find(some, node) == some.end()) text += (text.empty() ? "" : ", ") + std::to_string(node);
      }
      return text;
    };
    const NodeChange change{.ranks_before = ranks_ * static_cast<int>(before.size()),
                            .ranks = start.ranks,
                            .left_out = lacking(before, former_),
                            .came = lacking(former_, before)};
    board_->tell_change(change);
    if (options_.nodes.node != 0) return;
    std::fprintf(stderr, "consist launch: goes on with %zu of %d nodes%s%s\n", former_.size(), options_.nodes.nodes,
                 change.left_out.empty() ? "" : (", without node " + change.left_out).c_str(),
                 change.came.empty() ? "" : (", with node " + change.came + " again").c_str());
  }

  std::optional<int> end_of_nodes(int status, const Generation& generation) {
    NodeGroup::End mine{.status = status, .failure = {}};
    if (status != 0 && status != exit_paused && board_) mine.failure = generation.failure(*board_);
    const NodeGroup::End end = nodes_->agree_on_end(mine);
    if (end.status == exit_paused) {
      nodes_->leave();
      nodes_->dissolve();
      ++number_;
      board_->begin_generation();
      return std::nullopt;
    }
    if (end.status == 0 || !board_) {
      nodes_->leave();
      return status;
    }
    // Fewer nodes may lack the memory: then the job waits for others instead.
    const bool too_few = end.failure.status == exit_usage && !nodes_->is_whole() && !generation.stopping();
    // Node 0 decides, since it knows all failures before.
    const RestartPolicy::Decision decision =
        too_few ? policy_.decide_for_lost_node() : policy_.decide(end.failure, generation.stopping());
    const std::string said = nodes_->hear(decision.again ? "again" : "end " + decision.why_not);
    if (said != "again") {
      say_end(end.failure.text(), said.size() > 4 ? said.substr(4) : "");
      nodes_->leave();
      return status != 0 ? status : exit_peer_failed;
    }
    go_on(end.failure, policy_.used());
    if (too_few) {
      nodes_->refuse_number(end.failure.text());
      nodes_->leave();
      nodes_->dissolve();
    }
    return std::nullopt;
  }

  /// The launcher of another machine is gone, and its ranks with it.
  std::optional<int> after_loss(const PeerError& lost) {
    const std::string text = "node " + std::to_string(nodes_->node_of(lost.rank())) + " of the job is lost";
    nodes_->dissolve(lost.rank());
    const RestartPolicy::Decision decision = policy_.decide_for_lost_node();
    if (!decision.again) {
      say_end(text, decision.why_not);
      return exit_peer_failed;
    }
    const std::string limit =
        options_.nodes.varies()
            ? " for " + std::to_string(std::chrono::round<std::chrono::seconds>(options_.nodes.wait).count()) + " s"
            : "";
    std::fprintf(stderr, "consist launch: %s; waiting%s for a launcher in its place, restart %d of %d\n", printable(text).c_str(),
                 limit.c_str(), policy_.used(), policy_.most());
    ++number_;
    board_->begin_generation({.restart = policy_.used(), .most = policy_.most(), .rank = -1, .step = 0, .what = text});
    return std::nullopt;
  }

  void say_end(const std::string& text, const std::string& why_not) const {
    if (!why_not.empty()) std::fprintf(stderr, "consist launch: %s\n", printable(text + "; " + why_not).c_str());
  }

  void go_on(const RankFailure& failure, int restart) {
    const std::string text = failure.text();
    std::fprintf(stderr, "consist launch: %s; all ranks are started anew, restart %d of %d\n", printable(text).c_str(), restart,
                 policy_.most());
    ++number_;
    board_->begin_generation(
        {.restart = restart, .most = policy_.most(), .rank = failure.rank, .step = failure.step, .what = text});
  }

  /// True if a signal has come between two generations.
  bool asked_to_stop() const {
    bool asked = false;
    for (int signal; (signal = signals_.next()) != 0;) asked |= signal != SIGCHLD;
    if (asked) std::fprintf(stderr, "consist launch: a signal has asked for the end; the ranks are not started anew\n");
    return asked;
  }

  const int ranks_;
  const std::vector<std::string>& arguments_;
  const LaunchOptions options_;
  LauncherSignals signals_;
  RestartPolicy policy_;
  std::optional<RankBoard> board_;
  std::optional<SnapshotFolder> snapshots_;
  std::optional<NodeGroup> nodes_;
  int number_ = 0;           // of the generation
  int last_ = -1;            // that ran here
  std::vector<int> former_;  // the nodes of that one
};

}  // namespace

int launch_local(int ranks, const std::vector<std::string>& arguments, const LaunchOptions& options) {
  if (ranks < 1 || ranks > max_ranks) {
    throw UsageError("a local job has 1 to " + std::to_string(max_ranks) + " ranks; asked for were " + std::to_string(ranks));
  }
  return Launcher(ranks, arguments, options).run();
}

}  // namespace consist::launch
