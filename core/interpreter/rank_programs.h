// The programs of all ranks of a run, compiled as `consist train` compiles them, with their planned memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/interpreter/planned.h"
#include "core/plan/plan.h"

namespace consist::interpreter {

/// They share nothing with each other but constants and costs.
struct RankPrograms {
  RunConfig config;  ///< with its batch settled
  Parts parts;
  Layout layout;
  std::vector<Planned> steps, evaluations;  ///< by rank; an evaluation shares the memory of its rank's step
};

/// Throws what the compiler throws: UsageError for what cannot be run. `workspace`: see planned(). The plan has evaluations.
std::unique_ptr<RankPrograms> compile(const Plan& plan, std::int64_t workspace);
/// The same of parts that need not be those that the configuration names, planned for the reference machine.
std::unique_ptr<RankPrograms> compile(RunConfig config, Parts parts, std::int64_t workspace);

}  // namespace consist::interpreter
