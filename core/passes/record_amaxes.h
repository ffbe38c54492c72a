// The end of a step with delayed scaling.
#pragma once

#include "consist/program.h"

namespace consist {

/// Lets every history of largest magnitudes (core/ops/fp8_quantize.h) take that of this step: over the micro-batches, and over all
/// ranks, so that the histories, and with them the scales of the next step, are the same on each, whatever the layout. One small
/// all_gather per axis. After the schedule; does nothing to a program without histories. Near linear.
CONSIST_API void record_amaxes(Program& program);

}  // namespace consist
