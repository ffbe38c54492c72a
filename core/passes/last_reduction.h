// The end of backward under data parallelism: the gradient that is made last is the embedding's, often the largest of all, and
// nothing is left to be computed while it is reduced.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "consist/program.h"

namespace consist {

/// How ranks are to sum gradients.
struct Reduction {
  AxisSet axes;                    ///< of the mesh
  const Op* collective = nullptr;  ///< all_reduce or reduce_scatter, as the registry has it
  std::optional<DType> wire;       ///< in which they travel; absent: in their own
};

/// Moves gradients of weights, for which nothing else waits, behind the instruction that completes the last of `gradients`
/// (tensors of the step): as few, from the end of backward on, as keep compute busy while a rank sends that gradient and theirs,
/// by estimate. Only those move that are smaller and take at least twice as long to make as to send, and none past a collective,
/// beside which it may be meant to run, or where recomputed activations would be kept. Values and the order of sums stay as they
/// are. Returns the new place of each instruction, by its old one.
CONSIST_API std::vector<InstructionId> compute_beside_last_reduction(Program& step, std::span<const TensorId> gradients,
                                                                     const Reduction& reduction);

}  // namespace consist
