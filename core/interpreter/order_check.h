// The order proof: in a planned program every two instructions that touch the same bytes, one of them writing, are ordered by
// their queues and waits; those of one step and of the next by what executables do between steps, too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/interpreter/planned.h"

namespace consist::interpreter {

/// True for a queue that is idle when the next step begins on any queue. Executables join all: CpuExecutable::wait() returns when
/// every queue's thread is done, and the trainer begins a step behind it; CudaExecutable::enqueue() makes compute wait for the
/// end of all streams, and all streams for an event behind that. Tests leave queues out to show that conflicts are looked at.
using JoinsQueue = bool (*)(Queue);
inline bool joins_all(Queue /*queue*/) { return true; }

struct OrderReport {
  std::int64_t conflicts = 0;           ///< pairs of different queues that were looked at
  std::vector<std::string> violations;  ///< each names both instructions and the bytes; the first few
};

/// Near linear in the bytes' stretches: a sweep over the program that knows for each stretch of memory who wrote it last and
/// who has read it since, and for each instruction which instructions of every queue are over when it starts. Pairs further
/// back follow, since order is transitive. Scratch counts as written. Memory that a `release` keeps must not have been given to
/// others before it, so that no collective's operands are waited for. The program is swept twice, as two steps that follow one
/// another. Independent of core/lower/waits.cpp.
OrderReport check_order(const Planned& planned, JoinsQueue joins = joins_all);

/// The same of the programs of all ranks, and that their collectives meet. Adds what is not ordered to `wrong`, of ranks that do
/// the same once, and returns the number of pairs of all ranks. Throws ProgramError where collectives do not meet.
std::int64_t check_ranks(std::span<const Planned> programs, std::vector<std::string>& wrong);

}  // namespace consist::interpreter
