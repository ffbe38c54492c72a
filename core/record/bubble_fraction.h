// The bubble of a pipeline: how long its ranks wait, measured (--profile).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "consist/job.h"
#include "consist/program.h"
#include "core/cost/timeline.h"
#include "core/record/profile.h"

namespace consist {

/// The part of a step, its optimizer apart, in which this rank's compute queue had nothing to do, 0..1; from the mean times of
/// its instructions and of the same steps as a whole.
double bubble_fraction(const Program& program, const Profile& profile, double step_seconds);

/// Called by every rank, once: `own` of all ranks on rank 0, by rank; elsewhere nothing. Throws as Job::get.
std::vector<double> collect_bubble_fractions(Job& job, double own);

/// Called by every rank, once: on rank 0 the outlines of the ranks of its stages, with the times that they measured, in their
/// order; elsewhere nothing. Throws as Job::get.
std::vector<StageOutline> collect_outlines(Job& job, const Program& own, const Profile& profile);

/// Measured bubble fractions, beside those that the schedule gives.
struct BubbleReport {
  std::vector<double> ranks;
  double mean = 0;
  double equal_stages = 0;  ///< if all stages took the same time
  double by_ops = 0;        ///< if they took what their ops' costs say
  double by_times = 0;      ///< if their instructions took what was measured and messages no time
};

/// `stages`: the outlines of the programs along Program::stage_axis.
BubbleReport report_bubble(const std::vector<double>& ranks, std::span<const StageOutline> stages);
/// A line for people.
std::string bubble_text(const BubbleReport& report);

}  // namespace consist
