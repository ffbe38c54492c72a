// Steps of all ranks from given weights and tokens, and what they leave behind, as logical tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/interpreter/configuration.h"

namespace consist::interpreter {

/// Results that no layout may change.
struct Outcome {
  /// By name: parameters, their states, and ".gradient" of each, clipped, as the last step's optimizer got it (under SGD with the
  /// decayed weight added). Row-major, logical.
  std::map<std::string, std::vector<double>> values;
  std::vector<double> losses, grad_norms;                       ///< by step
  std::vector<double> auxiliary_losses;                         ///< by step, of models that have one
  std::vector<double> expert_choices;  ///< that fell on each expert, by step, of models that have routers
  double evaluation = 0;                                        ///< loss after the first step
  std::map<std::string, std::vector<double>> before, after_first_step;  ///< parameters and states
  double overflow = 0;                                                  ///< of all steps
};

struct RunOptions {
  std::uint64_t order = 0;  ///< chooses among legal timings
  int steps = 2;            ///< 1 or 2
  bool without_room = false;  ///< rows may overflow; otherwise that is an error
  bool rounded = false;     ///< what is written to f32 and bf16 is rounded as they are
};

/// Runs steps, with an evaluation after the first one if nothing is rounded, in the memory that the plans say. Initial values are
/// functions of name and element alone, tokens of sequence and position. Throws ProgramError for what goes wrong: see run_step;
/// also where ranks that hold the same elements end with different ones, or nobody holds an element.
Outcome run(const RankPrograms& programs, const RunOptions& options);

/// The loss of one rank over the first `sequences` sequences, with the parameters that `values` holds.
double evaluation_of_one_rank(const RunConfig& config, std::int64_t sequences,
                              const std::map<std::string, std::vector<double>>& values);

}  // namespace consist::interpreter
