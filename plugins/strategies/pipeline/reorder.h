// Brings the program of a step into the order of a pipeline's schedule.
#pragma once

#include <vector>

#include "consist/program.h"
#include "plugins/strategies/pipeline/orders.h"

namespace consist::pipeline {

/// The weight gradients of a backward part that run after its sends.
struct SendFirst {
  bool on = true;   ///< those whose inputs backward does not update in place later
  int of_last = 0;  ///< of so many last micro-batches the others, too: their inputs are kept
};

/// Moves the instructions of a divided step into the given order of this rank's parts; the receives of part i are posted before
/// part asked_before[i]. No weight gradient moves behind its part's sends if that would keep recomputed activations or leave a
/// collective of another axis without work beside it; parts of a schedule that splits weight gradients off send first anyway.
/// Throws ProgramError if the order leaves out a part that the program has.
void reorder(Program& step, const std::vector<Action>& order, const std::vector<std::size_t>& asked_before,
             const SendFirst& send_first);

/// Sums the gradients of parameters that two ranks train (Parameter::tied_replica), after the last micro-batch.
void sum_tied_gradients(Program& step, int axis);

}  // namespace consist::pipeline
