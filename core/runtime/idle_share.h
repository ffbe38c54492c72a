// How long the ranks of a pipeline wait, measured (--profile).
#pragma once

#include <string>
#include <vector>

#include "consist/job.h"
#include "consist/program.h"
#include "core/runtime/profile.h"

namespace consist {

/// The part of a step, its optimizer apart, in which a rank's compute queue had nothing to do: by rank of the job.
struct IdleShares {
  std::vector<double> ranks;
  double mean() const;
};

/// Of this rank, from the mean times of its instructions and of the same steps as a whole.
double idle_share(const Program& program, const Profile& profile, double step_seconds);

/// Called by every rank, once: collects `own` of all ranks on rank 0; elsewhere the result is empty. Throws as Job::get.
IdleShares collect_idle_shares(Job& job, double own);

/// A line for people, beside what `stages`, the programs along Program::stage_axis, would wait if they were equal and by their
/// ops' costs.
std::string idle_text(const IdleShares& measured, std::span<const Program* const> stages);
/// {"ranks": [...], "mean", "equal_stages", "by_ops"}
std::string idle_json(const IdleShares& measured, std::span<const Program* const> stages);

}  // namespace consist
