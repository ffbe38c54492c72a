// A look at the ranks' own work while a run goes on, waiting for one another left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/job.h"
#include "core/record/profile.h"
#include "core/record/rank_speeds.h"
#include "core/state/training_state.h"
#include "core/training/slow_ranks.h"

namespace consist {

/// One per rank and run, which outlive it. From time to time the ranks of each stage of a pipeline (without one, all) compare how
/// long the instructions of a few steps took. Where timing costs something, these steps alone are timed. Left out are models with
/// experts, where routers choose how many rows a rank has, and ranks that take turns on fewer cores.
class RankWatch {
 public:
  /// The time between two checks, and the steps, whichever is longer.
  static constexpr double seconds_between = 5;
  static constexpr std::int64_t steps_between = 20;

  struct Devices {
    bool timed = false;       ///< every step of the run is timed
    bool processors = false;  ///< ranks may take turns on them
  };
  RankWatch(Job& job, TrainingState& state, Devices devices);

  /// A rank that is slow, in words: "rank 3 on host node07".
  struct Finding {
    SlowRank slow;
    std::string host;
  };
  /// Called by every rank after each step, which took `seconds`, with its instructions' times. Returns what rank 0 is to tell.
  std::vector<Finding> step_finished(const std::vector<LaunchTime>& times, double seconds);

 private:
  std::vector<Finding> check();
  std::vector<Finding> judge(const std::vector<OpTimes>& all);
  /// Sets when the next check is; for all ranks the same, since steps do not take equally long on all.
  void agree_on_next();

  Job& job_;
  TrainingState& state_;
  const Devices devices_;
  std::int64_t done_ = 0, next_ = steps_between;  // steps; next_ of never: there are no checks
  double seconds_ = 0;                            // since the check before
  std::int64_t since_ = 0;                        // the step of that check
  Profile times_;                                 // of steps since then
  std::map<int, SlowRanks> slow_;                 // by stage
  std::vector<std::string> hosts_;                // by rank, on rank 0
};

}  // namespace consist
