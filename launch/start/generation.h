// The ranks of one generation of a job on this machine, from their start to their end.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/job/rank_board.h"
#include "launch/start/launcher.h"
#include "launch/start/launcher_signals.h"
#include "launch/start/rank_group.h"
#include "launch/start/restart_policy.h"

namespace consist::launch {

/// The arguments that it refers to outlive it.
class Generation {
 public:
  /// Starts the ranks. `replaced`: others follow where these fail, which therefore get less time to end. `growing`: the ranks are
  /// asked for a pause on `board` where more nodes could go on; null: never.
  Generation(const LocalJob& job, const std::vector<std::string>& arguments, const LaunchOptions& options,
             const LauncherSignals& signals, bool replaced, NodeGroup* growing = nullptr, RankBoard* board = nullptr)
      : growing_(growing),
        board_(board),
        options_(options),
        signals_(signals),
        replaced_(replaced),
        first_rank_(static_cast<std::size_t>(job.first_rank)),
        ranks_(job, arguments, options.all_output) {}

  /// Supervises the ranks until all have ended. Returns the status of the first that failed by itself; 0: none; exit_paused:
  /// none, and they have paused.
  int run();
  /// True if a signal has asked for the end.
  bool stopping() const noexcept { return signals_seen_ > 0; }
  /// After run() has returned another status than 0: who is to blame. `board` has what the ranks say of it.
  RankFailure failure(const RankBoard& board) const;

 private:
  using Clock = std::chrono::steady_clock;

  void wait_for_news() const;
  void note_end(const RankGroup::End& end);
  void pass_on(int signal);
  void escalate();
  void look_for_nodes();

  NodeGroup* const growing_;
  RankBoard* const board_;
  const LaunchOptions& options_;
  const LauncherSignals& signals_;
  const bool replaced_;
  const std::size_t first_rank_;  // of the job's
  RankGroup ranks_;
  std::optional<Clock::time_point> deadline_;  // when the ranks that are left get the signal next_
  int next_ = SIGTERM;
  bool killing_ = false;
  bool formed_ = true;  // false: the first rank that failed had not joined
  std::size_t first_failed_ = 0, failed_rank_ = 0;
  bool paused_ = false;  // some rank has
  int signals_seen_ = 0;
  Clock::time_point first_signal_{};
  int status_ = 0;
};

}  // namespace consist::launch
