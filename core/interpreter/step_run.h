// Steps of all ranks from given weights and tokens, and their results as logical tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/interpreter/interpreter.h"
#include "core/interpreter/logical_values.h"
#include "core/interpreter/rank_programs.h"

namespace consist::interpreter {

/// Rows of tokens at experts had no room: the trainer repeats such a step with more (CompileRequest::room).
class NoRoom : public ProgramError {
 public:
  using ProgramError::ProgramError;
};

/// Results that no layout may change.
struct Outcome {
  /// By name: parameters, their states, and ".gradient" of each, clipped, as the last step's optimizer got it.
  LogicalValues values;
  std::vector<double> losses, grad_norms;  ///< by step
  std::vector<double> auxiliary_losses;    ///< by step, of models that have one
  std::map<std::string, std::vector<double>> metrics;  ///< own_metrics(), by step
  std::vector<double> expert_choices;      ///< that fell on each expert, by step, of models that have routers
  double evaluation = 0;                   ///< loss after the first step
  LogicalValues before, after_first_step;  ///< parameters and states
  double overflow = 0;                     ///< of all steps
  SavedValues saved;                       ///< a checkpoint after the first step; of run() if there is a second one
};

struct RunOptions {
  std::uint64_t order = 0;     ///< chooses among legal timings
  int steps = 2;               ///< at least 1
  bool without_room = false;   ///< rows may overflow; otherwise that is an error
  bool rounded = false;        ///< what is written to f32 and bf16 is rounded as they are
  StepObserver observer = {};  ///< of the first step
};

/// Runs steps, with an evaluation after the first one if nothing is rounded, in the memory that the plans say. Initial values are
/// functions of name and element alone, tokens of sequence and position. Throws NoRoom, and ProgramError for what goes wrong: see
/// run_step; also where ranks that hold the same elements end with different ones, or no rank holds an element.
Outcome run(const RankPrograms& programs, const RunOptions& options);

/// Goes on with `saved`, a checkpoint of the same run in any layout: the steps behind it, up to options.steps. Losses and norms
/// are those of these steps. Throws as run() and resume().
Outcome run_on(const RankPrograms& programs, const SavedValues& saved, const RunOptions& options);

/// The loss of one rank over the first `sequences` sequences, with the parameters that `values` holds.
double evaluation_of_one_rank(const RunConfig& config, const Parts& parts, std::int64_t sequences, const LogicalValues& values);

}  // namespace consist::interpreter
