// Parts of the time of a row's step and the groups of instructions behind them, from the timelines of its runs.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/compare/outcome.h"

namespace consist::launch {

/// Instructions of one op on tensors that are named alike but for their layer. Seconds, FLOPs and bytes are those of a step.
struct InstructionGroup {
  std::string part;   ///< "products", "communication:data", "copies"
  std::string text;   ///< "linear model.layers.*.mlp.up_proj"
  std::string dtype;  ///< of the first operand
  double count = 0;
  double seconds = 0;      ///< that they cost the step: of communication and copies those for which compute waited
  double own_seconds = 0;  ///< that they took on their queue
  double simulated_seconds = 0, simulated_own_seconds = 0;  ///< the same of the simulated step, if there is one beside
  double flops = 0, bytes = 0;
  /// Those of the first run that take the longest.
  struct Instruction {
    double seconds = 0;
    std::size_t of_class = 0, index = 0;
  };
  std::vector<Instruction> longest;
};

using PartSeconds = std::map<std::string, double>;

/// Means over the runs that count; they sum to the row's step as the table has it.
struct StepParts {
  std::string problem;  ///< why there are none; empty: there are
  std::string source;   ///< "measured", or "simulated": then stretched to the measured step
  double measured_steps = 0;
  double step_seconds = 0, timed_seconds = 0;  ///< of the steady state, and of the steps whose instructions were timed
  PartSeconds parts;                           ///< with "untimed": what steps of the table took longer than timed ones
  PartSeconds simulated_parts;                 ///< of the simulated step, beside measured ones
  bool simulated_groups = false;               ///< groups have simulated seconds
  std::vector<InstructionGroup> groups;        ///< the longest first
  std::string archive;                         ///< of the first run that counts
  std::shared_ptr<const nlohmann::ordered_json> timeline;  ///< its /timeline
};

/// `outcome` has finished. Throws DataError for archives that are damaged.
StepParts step_parts(const CompareOutcome& outcome);

}  // namespace consist::launch
