// Hoists step invariants: results that depend on weights alone are computed once per step.
#pragma once

#include "consist/program.h"

namespace consist {

/// Deduplicates instructions marked once_per_step (attribute) with the same op, attributes and inputs: keeps the first, whose
/// outputs the others' readers read. Use the mark where storing the results for the step is cheaper than recomputing them for
/// every micro-batch. Runs after the schedule: a strategy that gathers a weight anew for each micro-batch has other inputs. Near
/// linear.
CONSIST_API void hoist_step_invariants(Program& program);

}  // namespace consist
