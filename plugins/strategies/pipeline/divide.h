// What one rank of a pipeline keeps of a program, and the messages that take the place of the rest.
#pragma once

#include "consist/program.h"

namespace consist::pipeline {

/// Leaves the instructions whose stage (Tag::stage) lies on program.rank: stage s on coordinate s % ranks of the axis. A tensor
/// that is made in one stage and read in the next (forward) or the one before (backward) is sent and received. What follows from
/// parameters alone is computed wherever it is used. A parameter that two stages use is trained by both
/// (Parameter::tied_replica), each with its own part of the gradient. Throws UsageError where stages that are not neighbours
/// exchange tensors, or more than two share a parameter.
void divide(Program& segment, int axis);

}  // namespace consist::pipeline
