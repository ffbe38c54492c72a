// The place in a step where a layout's values begin to differ from one rank's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/interpreter/rank_programs.h"

namespace consist::prove {

struct FirstDifference {
  std::string tensor, op, pass;  ///< the pass that inserted the instruction; empty: the model
  int rank = 0, layer = -1, micro_batch = -1;
  std::string instruction;  ///< "rank 1, #12: ..."
  double found = 0, expected = 0;
  std::vector<std::string> inputs_from;  ///< the instructions that made its operands on that rank
};

/// Runs a step of both, side by side by the names of tensors, and returns the first instruction that writes a value which one
/// rank does not have, in an order in which the step may run. Compares tensors that both programs name once a micro-batch and
/// that are no partial sums. `one` has the same micro-batches. Nothing if there is none: the difference is then in values that
/// have no counterpart.
std::optional<FirstDifference> first_difference(const interpreter::RankPrograms& programs, const interpreter::RankPrograms& one,
                                                std::uint64_t order);

}  // namespace consist::prove
