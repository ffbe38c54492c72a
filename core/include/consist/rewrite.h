// Rewrites of whole programs that strategies may use, on the step's program or on a copy that they analyse.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "consist/dtype.h"
#include "consist/program.h"

namespace consist {

/// Appends the backward part of `program.loss` and sets Parameter::gradient (accumulated in `gradient_dtype`). Forward
/// instructions that the backward part makes superfluous are removed. ERRORS: ProgramError for a parameter that the loss does not
/// depend on.
CONSIST_API void differentiate(Program& program, DType gradient_dtype);

/// Removes instructions none of whose outputs are read, updated in place, states, the loss or gradients. Those without outputs stay: a
/// send, and a release of a tensor that is still made. Linear.
CONSIST_API void remove_dead(Program& program);

/// Propagates the placements and dtypes of inputs, parameters and constants, as they stand in `program`, through a forward
/// program: every instruction is emitted anew, and types, placements and the collectives between them follow. Instructions keep
/// their tags; collectives that earlier placements needed are dropped.
CONSIST_API Program propagate_shardings(const Program& program);

/// How ranks are to sum gradients.
struct Reduction {
  AxisSet axes;                    ///< of the mesh
  const Op* collective = nullptr;  ///< all_reduce or reduce_scatter, as the registry has it
  std::optional<DType> reduce_dtype;  ///< the dtype in which they travel; absent: their own
};

/// Moves gradients of weights, for which nothing else waits, behind the instruction that completes the last of `gradients`
/// (tensors of the step): as few, from the end of backward on, as keep compute busy while a rank sends that gradient and theirs,
/// by estimate. Only those move that are smaller and take at least twice as long to make as to send, and none past a collective,
/// beside which it may be meant to run, or where recomputed activations would be kept. Values and the order of sums stay as they
/// are. Returns the new place of each instruction, by its old one.
CONSIST_API std::vector<InstructionId> compute_beside_last_reduction(Program& step, std::span<const TensorId> gradients,
                                                                     const Reduction& reduction);

}  // namespace consist
