#include "launch/start/restart_policy.h"

#include <cstring>

#include "launch/cli/exit_status.h"

namespace consist::launch {

std::string RankFailure::text() const {
  const std::string where = step > 0 ? " in step " + std::to_string(step) : " before its first step";
  const std::string name = "rank " + std::to_string(rank);
  if (status == 0) return name + " did not go on" + where;
  if (status > 128) {
    const int signal = status - 128;
    return name + " was ended by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")" + where;
  }
  return name + " failed" + where + (why.empty() ? " with status " + std::to_string(status) : ": " + why);
}

bool RankFailure::repeats(const RankFailure& earlier) const {
  if (status != earlier.status || step != earlier.step) return false;
  const bool is_error = status > 0 && status < 128 && !why.empty();
  return is_error ? why == earlier.why : rank == earlier.rank;
}

RestartPolicy::Decision RestartPolicy::decide(const RankFailure& failure, bool stopping) {
  if (most_ == 0 || stopping) return {};
  if (const std::string why_not = reason_against(failure); !why_not.empty()) return {false, why_not};
  last_ = failure;
  ++used_;
  return {true, {}};
}

std::string RestartPolicy::reason_against(const RankFailure& failure) const {
  if (failure.status == exit_usage) return "the job is not started anew: what was refused would be refused again";
  if (failure.status == exit_stopped)
    return "the job is not started anew: a signal asked rank " + std::to_string(failure.rank) + " to end";
  if (last_ && failure.repeats(*last_))
    return "the job is not started anew: the same happened before restart " + std::to_string(used_) + ", and would happen again";
  return used_up();
}

std::string RestartPolicy::used_up() const {
  if (used_ < most_) return "";
  return "the job is not started anew: " +
         (most_ == 1 ? "the one restart of --max-restarts is"
                     : "all " + std::to_string(most_) + " restarts of --max-restarts are") +
         " used up";
}

RestartPolicy::Decision RestartPolicy::decide_for_lost_node() {
  if (most_ == 0) return {};
  if (const std::string why_not = used_up(); !why_not.empty()) return {false, why_not};
  last_.reset();
  ++used_;
  return {true, {}};
}

}  // namespace consist::launch
