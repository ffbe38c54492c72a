#include "core/training/rank_watch.h"

#include <algorithm>
#include <cmath>

#include "consist/host.h"

namespace consist {
namespace {

// GPUs of one kind differ by some percent; processors by what else runs on them.
constexpr double limit = 0.1, limit_of_processors = 0.3;
constexpr std::int64_t never = -1;
constexpr std::int64_t steps_timed = 4;  // before a check; the first of them does not count (Profile)

}  // namespace

RankWatch::RankWatch(Job& job, TrainingState& state, Devices devices) : job_(job), state_(state), devices_(devices) {
  if (job.size() < 2 || !state.step().program().routers.empty()) next_ = never;
}

std::vector<RankWatch::Finding> RankWatch::step_finished(const std::vector<LaunchTime>& times, double seconds) {
  if (next_ == never) return {};
  ++done_;
  seconds_ += seconds;
  if (devices_.timed || done_ > next_ - steps_timed) times_.add(times);
  if (done_ == next_) return check();
  if (!devices_.timed && done_ == next_ - steps_timed) state_.step().set_timing(true);
  return {};
}

std::vector<RankWatch::Finding> RankWatch::check() {
  if (!devices_.timed) state_.step().set_timing(false);
  const std::vector<OpTimes> all = collect_op_times(job_, op_times(state_.step().program(), times_));
  agree_on_next();
  since_ = done_;
  seconds_ = 0;
  times_ = Profile();
  return job_.rank() == 0 && next_ != never ? judge(all) : std::vector<Finding>();
}

void RankWatch::agree_on_next() {
  const double mean = seconds_ / static_cast<double>(done_ - since_);
  const auto steps = static_cast<std::int64_t>(std::ceil(std::min(seconds_between / std::max(mean, 1e-9), 1e9)));
  std::int64_t next = done_ + std::max(steps, steps_between);
  if (since_ == 0) {
    const bool takes_turns = devices_.processors && job_.local_size() > usable_cores();
    if (job_.reduce("watch.turns", {takes_turns ? 1.0 : 0.0}, ReduceOp::max, job_.timeout()).front() > 0) next = never;
    hosts_ = job_.gather("watch.hosts", job_.host(), job_.timeout());
  }
  next_ = std::stoll(job_.broadcast("watch.next", std::to_string(next), job_.timeout()));
}

std::vector<RankWatch::Finding> RankWatch::judge(const std::vector<OpTimes>& all) {
  const Program& program = state_.step().program();
  std::map<int, std::vector<int>> stages;
  for (int rank = 0; rank < job_.size(); ++rank)
    stages[program.stage_axis < 0 ? 0 : program.mesh.coordinate(rank, program.stage_axis)].push_back(rank);
  std::vector<Finding> findings;
  for (const auto& [stage, ranks] : stages) {
    std::vector<OpTimes> times;
    for (const int rank : ranks) times.push_back(all[static_cast<std::size_t>(rank)]);
    for (SlowRank slow :
         slow_.try_emplace(stage, devices_.processors ? limit_of_processors : limit).first->second.add(rank_speeds(times))) {
      slow.rank = ranks[static_cast<std::size_t>(slow.rank)];
      findings.push_back({slow, hosts_[static_cast<std::size_t>(slow.rank)]});
    }
  }
  return findings;
}

}  // namespace consist
