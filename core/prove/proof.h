// The proof that a layout is the same training as one rank: `consist prove`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/prove/first_difference.h"

namespace consist::prove {

/// One of the statements that a proof consists of.
struct Statement {
  std::string name;                ///< "training", "evaluation", "checkpoint", "other layout", "order", "full size"
  std::string text;                ///< what was shown, for people: "3 steps: the loss, 27 gradients, ..."
  std::vector<std::string> wrong;  ///< what is not so; empty: it holds
  double seconds = 0;
};

struct Proof {
  std::string sizes;               ///< of the small model
  std::vector<std::string> notes;  ///< on options that were scaled with it
  std::vector<Statement> statements;
  std::optional<FirstDifference> first;  ///< where a step goes wrong, if training differs and the place is found

  bool holds() const;
};

struct ProofOptions {
  bool full_size = true;    ///< the order of collectives and of memory of the run's own programs, too
  std::uint64_t order = 1;  ///< chooses among legal timings of the small run
  int threads = 1;
};

/// Makes the small run of `plan` (small_run.h), runs the programs of all its ranks in fp64 beside one rank, and compares: losses,
/// norms, the gradients that the optimizer gets, parameters and states over three steps, an evaluation; a checkpoint behind the
/// first step, resumed on the same layout, on one rank, from one rank, and on another layout and back (other_layout.h). Then the
/// order of collectives and of memory of the programs, small and in full size. A statement of steps that is wrong ends neither
/// the proof nor the others. Throws what small_run() and the compiler throw.
Proof prove(const Plan& plan, const ProofOptions& options);

}  // namespace consist::prove
