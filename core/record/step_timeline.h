// Start times of a step's instructions, for the archive: a report shows by them where the time goes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/export.h"
#include "consist/job.h"
#include "core/lower/prepared_program.h"
#include "core/plan/plan.h"

namespace consist {

/// Steps of a run, counted from 1 after a resume, too; none if `last` is before `first`.
struct TimedSteps {
  std::int64_t first = 1, last = 0;
  bool switched = false;  ///< timing begins with the run's first step and ends with `last`; otherwise it is on throughout
  bool any() const noexcept { return last >= first; }
  bool contains(std::int64_t step) const noexcept { return step >= first && step <= last; }
};

/// The steps of a run of `steps` that are timed. Where timing costs nothing (`free`), the steady state. Elsewhere the warm-up,
/// whose speed nobody asks about, without the first step, in which libraries set themselves up, and without its last two, in
/// which a device may record its step anew.
CONSIST_API TimedSteps timed_steps(std::int64_t steps, bool free);

/// Mean times of one rank's instructions.
class CONSIST_API StepTimeline {
 public:
  /// `times` by instruction, as Executable::launch_times() gives them; of a step that took `step_seconds`. Empty ones count
  /// nothing.
  void add(std::span<const LaunchTime> times, double step_seconds);
  void clear() { *this = {}; }

  std::int64_t steps() const noexcept { return steps_; }
  double step_seconds() const { return steps_ > 0 ? seconds_ / static_cast<double>(steps_) : 0; }  ///< mean of the added steps
  std::vector<LaunchTime> times() const;

 private:
  std::vector<LaunchTime> sums_;
  double seconds_ = 0;
  std::int64_t steps_ = 0;
};

/// A member of "classes" of the archive's /timeline, of planned programs: docs/archive.md has the keys. `times` by instruction,
/// of a step of `step_seconds`.
CONSIST_API nlohmann::ordered_json timeline_of(const PreparedProgram& step, std::vector<LaunchTime> times, double step_seconds);

/// The archive's /timeline, on rank 0; elsewhere nothing. Called by every rank, once. `plan` is that of the run. Stages other
/// than the own are compiled for the simulation only if `may_compile`. Throws as Job::gather.
std::string timeline_json(Job& job, const Plan& plan, const PreparedProgram& step, const StepTimeline& measured,
                          bool may_compile);

}  // namespace consist
