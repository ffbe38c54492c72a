// A machine tightened by runs: its device's figures, by which the measured instructions differ from the simulated ones.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "consist/cost.h"
#include "launch/residual/step_parts.h"

namespace consist::launch {

/// Seconds of an op's instructions of one dtype over all runs.
struct OpSums {
  double measured = 0, simulated = 0, flops = 0;
  double ratio() const { return measured / simulated; }
};
/// By op and dtype of the first operand ("linear", "bf16").
using LearnedOps = std::map<std::pair<std::string, std::string>, OpSums>;

/// Those of the compute queue. Steps without simulated groups count nothing.
LearnedOps ops_of(std::span<const StepParts* const> steps);

/// `machine`, which the steps were simulated for, with the times of these ops times measured over simulated. Of ops that have no
/// times the share of the peak that they reached becomes the measured one; of those without FLOPs the rate of the memory changes,
/// by all of them together. "measured here".
Machine learned_machine(Machine machine, const LearnedOps& ops);

}  // namespace consist::launch
