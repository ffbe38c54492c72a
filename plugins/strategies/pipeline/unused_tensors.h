// Removes tensors that a stage does not need.
#pragma once

#include "consist/program.h"

namespace consist::pipeline {

/// Removes tensors that no instruction refers to any more; the others are numbered anew.
void drop_unused_tensors(Program& program);

}  // namespace consist::pipeline
