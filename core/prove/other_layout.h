// Layouts of several ranks beside the proven one, and a checkpoint that goes there and back.
#pragma once

#include <string>
#include <vector>

#include "core/interpreter/step_run.h"
#include "core/plan/plan.h"
#include "core/prove/programs_with_room.h"

namespace consist::prove {

/// Runs of the same steps in other layouts, to be tried in turn: first with the sizes of all strategies but the data-parallel
/// ones halved from 4 on and another data-parallel strategy, then one of the two alone, then a single strategy. Each has several
/// ranks, and at most as many as `plan` (or 2). None need compile.
std::vector<RunConfig> other_layouts(const Plan& plan);

/// "tp-sp=4+zero2=8 on 32 ranks".
std::string layout_text(const RunConfig& config);

/// A checkpoint of a run, and the same steps on one rank.
struct Checkpoint {
  const interpreter::RankPrograms& here;  ///< that saved it
  const interpreter::SavedValues& saved;
  const interpreter::RankPrograms& one;
  const interpreter::Outcome& expected;  ///< of all steps on one rank
  interpreter::RunOptions options;       ///< of the run; steps are at least two more than those of `saved`
  double within;
};

/// Trains a step behind the checkpoint on the ranks of `there`, saves one there, and trains the steps behind that on the ranks
/// that saved the first. Returns what differs from one rank, the first tensors that do; empty: all is equal. Throws UsageError
/// where `there` cannot resume it.
std::vector<std::string> there_and_back(const Checkpoint& checkpoint, ProgramsWithRoom& there);

}  // namespace consist::prove
