// Less than a plan's step, for estimates.
#pragma once

#include "core/plan/plan.h"

namespace consist {

/// compile_reduced_step() of a plan that is laid out, with so many micro-batches.
CONSIST_API Program reduced_step(const Plan& plan, int periods, int micro_batches);

}  // namespace consist
