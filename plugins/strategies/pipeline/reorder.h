// The order of a pipeline's schedule, brought about in the program of a step.
#pragma once

#include <vector>

#include "consist/program.h"
#include "plugins/strategies/pipeline/orders.h"

namespace consist::pipeline {

/// Moves the instructions of a divided step into the given order of this rank's parts; what part i receives is asked for before
/// part asked_before[i]. With `sends_first` weight gradients go behind what their backward part sends, where that costs no
/// copies, keeps nothing that is recomputed and leaves no collective of another axis without work beside it; parts of a schedule
/// that splits weight gradients off send first anyway. Throws ProgramError if the order leaves out a part that the program has.
void reorder(Program& step, const std::vector<Action>& order, const std::vector<std::size_t>& asked_before, bool sends_first);

/// Sums the gradients of parameters that two ranks train (Parameter::twin), after the last micro-batch.
void sum_over_twins(Program& step, int axis);

}  // namespace consist::pipeline
