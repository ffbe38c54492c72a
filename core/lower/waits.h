// Orders the queues: makes each instruction wait for those of other queues that it depends on.
#pragma once

#include <span>

#include "consist/program.h"
#include "core/lower/memory_plan.h"

namespace consist {

/// Fills Instruction::waits. Conflicts are found by address (after the memory plan), so that data dependencies, updates in place
/// and the reuse of memory are one case: an instruction waits for the latest earlier ones of other queues that wrote what it
/// touches or read what it writes. Waits that others imply are left out. Near linear.
CONSIST_API void insert_waits(Program& program, const MemoryPlan& plan, std::span<const std::int64_t> workspace_bytes);

}  // namespace consist
