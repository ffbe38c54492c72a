// The interpreter: runs the programs of all ranks of a training step in lockstep, in one process and one thread, in fp64.
//
//   configuration.h  words of a command line -> the programs of all ranks, by the compiler of `consist train`
//   planned.h        a program with its planned memory and its waits
//   arena.h          a rank's memory at the planned addresses: cells that hold a number and know who wrote it
//   compute.h        what an instruction computes, from the formulas of tests/reference
//   collectives.h    what collectives and messages move, over the values of all members
//   interpreter.h    all ranks' queues side by side, in any order that queues and waits allow
//   step_run.h       two steps and an evaluation from given weights, optimizer states and tokens; logical results
//   cell.h           the same on one rank, and what differs
//   order_check.h    the order proof: no two instructions that conflict on memory are left unordered
//   random_configuration.h
//
// A cell shows that loss, norm of the gradients, loss of an evaluation, every gradient that reaches the optimizer, every updated
// parameter and optimizer state are those of one rank without micro-batches to 1e-9 of their largest element. Weights, moments and tokens
// are functions of name and position, so that a part in the wrong place is a wrong number. Dtypes decide where elements lie
// and what is cast, not how numbers round: a program in bf16 or fp8 is held against the same one rank. In which dtype sums over
// micro-batches and ranks are made is a test of its own (rounding_test.cpp), where every value is rounded. That kernels compute
// what docs/ops.md says, and round as it says, is tested elsewhere (tests/kernels, tests/cpu); so are transports and the trainer.
//
// A new layout becomes a cell by a line in one of the *_test.cpp here; a new op needs its formula in compute.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "tests/interpreter/arena.h"

namespace consist::interpreter {

/// Runs what `ranks[r]` holds as rank r's program to its end. A collective runs once all members of its group have it at the head
/// of a queue with nothing left to wait for, a message once both of its ends have. Among what may run, `seed` chooses the order,
/// so that another seed is another legal timing of the same programs. Throws ProgramError where instructions do not fit each
/// other, read what they should not (see Arena), or block each other.
void run_step(std::span<Arena* const> ranks, std::uint64_t seed);

}  // namespace consist::interpreter
