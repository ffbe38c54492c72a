// What a stage does not need of the whole program's tensors.
#pragma once

#include "consist/program.h"

namespace consist::pipeline {

/// Leaves out tensors that nothing refers to any more; the others are numbered anew.
void drop_unused_tensors(Program& program);

}  // namespace consist::pipeline
