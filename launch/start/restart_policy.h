// The decision if a job that has failed is started anew.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace consist::launch {

/// The end of a generation of a job, by the rank that is to blame.
struct RankFailure {
  int rank = 0;
  int status = 0;         ///< as a shell shows it; 0 for one that hung, whose end was not its own
  std::int64_t step = 0;  ///< the step that it was in; 0: before the first
  std::string why;        ///< its error, or what the others say of one that hung; may be empty

  /// "rank 2 was ended by signal 9 (Killed) in step 57"
  std::string text() const;
  /// True if starting anew has led to the same end in the same step: by the same error of whichever rank, or in the same way of
  /// the same rank.
  bool repeats(const RankFailure& earlier) const;
};

/// Counts the restarts of a job.
class RestartPolicy {
 public:
  explicit RestartPolicy(int most) : most_(most) {}

  struct Decision {
    bool again = false;
    std::string why_not;  ///< a sentence; empty where restarts were not asked for
  };
  /// `stopping`: somebody has asked for the end. Counts the restart that it decides for.
  Decision decide(const RankFailure& failure, bool stopping);

  /// The same where a machine is lost with all its ranks.
  Decision decide_for_lost_node();
  /// Takes over what launchers of other machines have counted.
  void set_used(int used) noexcept { used_ = used; }

  int most() const noexcept { return most_; }
  int used() const noexcept { return used_; }

 private:
  std::string reason_against(const RankFailure& failure) const;
  std::string used_up() const;

  int most_;
  int used_ = 0;
  std::optional<RankFailure> last_;
};

}  // namespace consist::launch
