// A program with addresses and waits, for tests of what passes make.
#pragma once

#include <utility>

#include "core/lower/memory_plan.h"
#include "core/lower/waits.h"

namespace consist::test {

/// Kernels need no workspace here.
inline Program planned(Program program, MemoryPlan* out = nullptr) {
  MemoryPlan plan = plan_memory(program, {});
  insert_waits(program, plan, {});
  if (out != nullptr) *out = std::move(plan);
  return program;
}

}  // namespace consist::test
