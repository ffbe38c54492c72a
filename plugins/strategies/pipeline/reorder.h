// The order of a pipeline's schedule, brought about in the program of a step.
#pragma once

#include <vector>

#include "consist/program.h"
#include "plugins/strategies/pipeline/orders.h"

namespace consist::pipeline {

/// Which weight gradients of a backward part run behind what it sends.
struct SendFirst {
  bool on = true;   ///< those that read nothing which backward goes on to update in place
  int of_last = 0;  ///< of so many last micro-batches the others, too: what they read is kept
};

/// Moves the instructions of a divided step into the given order of this rank's parts; what part i receives is asked for before
/// part asked_before[i]. No weight gradient goes behind what its part sends if that would keep what is recomputed or leave a
/// collective of another axis without work beside it; parts of a schedule that splits weight gradients off send first anyway.
/// Throws ProgramError if the order leaves out a part that the program has.
void reorder(Program& step, const std::vector<Action>& order, const std::vector<std::size_t>& asked_before,
             const SendFirst& send_first);

/// Sums the gradients of parameters that two ranks train (Parameter::tied_replica), after the last micro-batch.
void sum_tied_gradients(Program& step, int axis);

}  // namespace consist::pipeline
