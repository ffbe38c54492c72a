// The interpreter: runs the programs of all ranks of a training step in lockstep, in one process and one thread, in fp64.
//
//   rank_programs.h   the programs of all ranks, by the compiler of `consist train`
//   planned.h         a program with its planned memory and its waits
//   arena.h           a rank's memory at the planned addresses: cells that hold a number and know who wrote it
//   compute.h         the value of an instruction, from the formulas of core/reference
//   collectives.h     collectives and messages over the values of all members
//   interpreter.h     all ranks' queues side by side, in any order that queues and waits allow
//   logical_values.h  logical tensors put together from the ranks' parts, saved and resumed
//   step_run.h        steps and an evaluation from given weights, optimizer states and tokens
//   order_check.h     the order proof: no two instructions that conflict on memory are left unordered
//
// Dtypes decide where elements lie and what is cast, not how numbers round: a program in bf16 or fp8 is held against the same one
// rank. `consist prove` (core/prove) and tests/interpreter stand on it. A new op needs its formula in compute.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/interpreter/arena.h"

namespace consist::interpreter {

/// Is told of an instruction of a rank: when its outputs have been written, or when it is about to run.
using StepObserver = std::function<void(const Arena& rank, InstructionId instruction)>;

/// Runs what `ranks[r]` holds as rank r's program to its end. A collective runs once all members of its group have it at the head
/// of a queue with nothing left to wait for, a message once both of its ends have. Among what may run, `seed` chooses the order,
/// so that another seed is another legal timing of the same programs. Throws ProgramError where instructions do not fit each
/// other, read what they should not (see Arena), or block each other. The observers, of instructions that have run and of those
/// that are about to, may be empty.
void run_step(std::span<Arena* const> ranks, std::uint64_t seed, const StepObserver& after = {}, const StepObserver& before = {});

}  // namespace consist::interpreter
