// Which part of a model lies in which stage.
#pragma once

#include <vector>

#include "consist/program.h"

namespace consist::pipeline {

/// Cuts `costs` (at least `parts` of them) into `parts` contiguous, non-empty groups whose largest sum is as small as can be; of several such
/// cuts one whose sums are the most even. Returns the group of each.
std::vector<int> balanced(const std::vector<double>& costs, int parts);

/// Sets Tag::stage of every instruction of a forward program: layers by balanced cost, what comes before the first layer with the first stage,
/// what follows the last one with the last stage. Throws UsageError if there are fewer layers than stages.
void assign_stages(Program& forward, int stages);

}  // namespace consist::pipeline
