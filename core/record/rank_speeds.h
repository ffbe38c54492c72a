// Speeds of a pipeline's ranks relative to one another, measured (--profile): GPUs of one kind differ by some percent.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/job.h"
#include "consist/mesh.h"
#include "consist/program.h"
#include "core/record/profile.h"

namespace consist {

/// Seconds of a rank's compute queue in a step, for one op.
struct OpSeconds {
  double measured = 0;
  double by_cost = 0;  ///< as costs_of() the program says
};
using OpTimes = std::map<std::string, OpSeconds>;

/// Returns the seconds of all instructions of a step but the optimizer's, by op.
CONSIST_API OpTimes op_times(const Program& program, const Profile& profile);

/// Called by every rank, once: `own` of all ranks on rank 0, by rank; elsewhere nothing. Throws as Job::gather.
CONSIST_API std::vector<OpTimes> collect_op_times(Job& job, const OpTimes& own);

/// The seconds that a rank's work takes at the rates which all ranks together have in each op, over those that it took: above 1
/// is faster than the others. By ops that every rank has, so that it does not matter who has the LM head. All 1 if there is none.
CONSIST_API std::vector<double> rank_speeds(std::span<const OpTimes> ranks);

/// The slowest rank of each stage as --pipeline.rank-speeds takes it: "0.989:1.003:1.014:0.994".
CONSIST_API std::string stage_speeds_text(const std::vector<double>& speeds, const Mesh& mesh, int stage_axis);

}  // namespace consist
