// How long instructions take beside each other, before anything has run: for cutting a model into even parts and drawing when
// they run.
#pragma once

#include "consist/program.h"

namespace consist {

/// The time of an instruction on current GPUs in bf16, as the floating-point operations of a matrix product that takes as long.
CONSIST_API double work_of(const Program& program, const Instruction& instruction);

}  // namespace consist
