// The additive reason of a difference in speed: the parts of the step's time of both sides.
#pragma once

#include <string>
#include <vector>

#include "launch/residual/step_parts.h"

namespace consist::launch {

struct PartChange {
  std::string part;     ///< "attention", "communication:data", "gaps"; of instructions that of their time
  std::string text;     ///< of instructions: "linear model.layers.*.mlp.up_proj"; empty: the part as a whole
  double a = 0, b = 0;  ///< seconds
  double change() const { return b - a; }
};

struct SpeedReason {
  std::string problem;                   ///< why there is none; empty: there is one
  double step_a = 0, step_b = 0;         ///< seconds, of as many tokens as a step of A trains on; parts sum to them
  bool simulated = false;                ///< the parts of a side were simulated, not measured
  std::vector<PartChange> parts;         ///< by the size of their change
  std::vector<PartChange> instructions;  ///< the groups of instructions that changed most, at most five
};

/// From the parts of both sides, as the report shows them (docs/report.md). `scale`: of B's seconds, the tokens of a step of A
/// over those of B.
SpeedReason reason_of(const StepParts& a, const StepParts& b, double scale);

}  // namespace consist::launch
