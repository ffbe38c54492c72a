// A rank's program with its planned memory and waits: what the interpreter runs and the order proof reads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "consist/program.h"
#include "core/lower/memory_plan.h"

namespace consist::interpreter {

struct Planned {
  Program program;
  MemoryPlan plan;
  std::vector<std::int64_t> workspaces;  ///< bytes, by instruction
};

/// Plans as PreparedProgram does, with scratch of `workspace` bytes (0: none) for each instruction that computes, as kernels of
/// a GPU have it. `states` as plan_memory takes them.
Planned planned(Program program, std::int64_t workspace, const std::map<std::string, std::int64_t>* states = nullptr);

/// Bytes [begin, end) of one memory space.
struct Stretch {
  MemorySpace space;
  std::int64_t begin, end;
};

/// The bytes that `instruction` touches of one of its tensors on this rank: one stretch, or one per row where it is a strided
/// view of a wider tensor; with the padding behind a whole tensor that is moved in flat parts of equal length.
std::vector<Stretch> stretches(const Planned& planned, const Instruction& instruction, TensorId tensor);

/// "rank 1, #12: all_reduce ..." for messages.
std::string place_of(const Program& program, InstructionId instruction);

}  // namespace consist::interpreter
