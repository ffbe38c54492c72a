// Hoists step invariants: results that depend on weights alone are computed once per step.
#pragma once

#include "consist/program.h"

namespace consist {

/// Of instructions marked once_per_step (attribute) that have the same op, attributes and inputs, keeps the first; the others'
/// readers read its outputs. Whoever marks them says that the memory of their results is worth less than making them again for
/// every micro-batch. After the schedule: a strategy that gathers a weight anew for each micro-batch has other inputs. Near
/// linear.
CONSIST_API void hoist_step_invariants(Program& program);

}  // namespace consist
