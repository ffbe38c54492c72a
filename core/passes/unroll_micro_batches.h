// Gradient accumulation: one micro-batch becomes several.
#pragma once

#include "consist/program.h"

namespace consist {

/// Repeats forward and backward `micro_batches` times: inputs "ids" become "ids.0", "ids.1", ...; activations are made anew each
/// time, gradients of parameters accumulate in place, losses are summed. Unrolled rather than looped, so that every later pass
/// (overlap, pipeline schedules, memory plan) sees one flat list; the cost is linear and small (10^5 instructions compile in
/// seconds).
CONSIST_API void unroll_micro_batches(Program& program, int micro_batches);

}  // namespace consist
