// Collectives and messages over the values of all members, moved as their kernels move them (core/ops/collective_kernels.cpp):
// the same stretches of memory, padding and gaps between tensors included.
#pragma once

#include <span>
#include <string>

#include "core/interpreter/arena.h"

namespace consist::interpreter {

/// An end of a collective: a rank's memory and its instruction.
struct Member {
  Arena* arena;
  InstructionId instruction;
  const Instruction& get() const { return arena->planned().program.instructions[static_cast<std::size_t>(instruction)]; }
  std::string text() const { return place_of(arena->planned().program, instruction); }
};

/// Runs one collective of a group, its members in the order of their coordinates. Throws ProgramError naming two members whose
/// calls do not fit each other: another op, other attributes, or messages of other lengths; UsageError for a plugin's own op.
void run_collective(std::span<const Member> members);

/// Moves what `sender` sends to `receiver`.
void run_message(const Member& sender, const Member& receiver);

}  // namespace consist::interpreter
