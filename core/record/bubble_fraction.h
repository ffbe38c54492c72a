// The bubble of a pipeline: how long its ranks wait, measured (--profile).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "consist/job.h"
#include "consist/program.h"
#include "core/cost/simulator.h"
#include "core/plan/plan.h"
#include "core/record/profile.h"

namespace consist {

/// The part of a step, its optimizer apart, in which this rank's compute queue had nothing to do, 0..1; from the mean times of
/// its instructions and of the same steps as a whole.
double bubble_fraction(const Program& program, const Profile& profile, double step_seconds);

/// Measured bubble fractions, beside those that the schedule gives.
struct BubbleReport {
  std::vector<double> ranks;
  double mean = 0;
  double equal_stages = 0;  ///< if all stages took the same time
  double by_ops = 0;        ///< if they took what their ops' costs say
  double by_times = 0;      ///< if their instructions took what was measured and messages no time
};

/// `stages`: the planned programs along Program::stage_axis; `measured`: seconds of their instructions. Throws as simulate().
CONSIST_API BubbleReport bubble_report(const std::vector<double>& ranks, std::span<const Program* const> stages,
                                       std::span<const Durations> measured);
/// The same of a run: called by every rank, once, with the program that it ran; on rank 0 the report, elsewhere nothing. `plan`
/// is the run's: rank 0 compiles the other stages' steps by it. Throws as Job::gather.
std::optional<BubbleReport> collect_bubble_report(Job& job, const Plan& plan, const Program& own, const Profile& profile,
                                                  double step_seconds);

/// A line for people.
std::string bubble_text(const BubbleReport& report);

}  // namespace consist
