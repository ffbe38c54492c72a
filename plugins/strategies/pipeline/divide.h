// Keeps the instructions of one rank of a pipeline, and inserts the messages between stages.
#pragma once

#include "consist/program.h"

namespace consist::pipeline {

/// Keeps the instructions whose stage (Tag::stage) lies on program.rank: stage s on coordinate s % ranks of the axis. A tensor
/// that is made in one stage and read in the next (forward) or the one before (backward) is sent and received. Tensors that
/// follow from parameters alone are computed wherever they are used. A parameter that two stages use is trained by both
/// (Parameter::tied_replica), each with its own summand of the gradient. Throws UsageError where stages that are not neighbours
/// exchange tensors, more than two share a parameter, or one reads a trained parameter without a summand of its gradient.
void divide(Program& segment, int axis);

}  // namespace consist::pipeline
