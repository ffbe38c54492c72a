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

/// Removes instructions none of whose outputs are read, updated in place, states, the loss or gradients. Those without outputs
/// stay: a send, and a release of a tensor that is still made. Linear.
CONSIST_API void remove_dead(Program& program);

/// Propagates the placements and dtypes of inputs, parameters and constants, as they stand in `program`, through a forward
/// program: every instruction is emitted anew, and types, placements and the collectives between them follow. Instructions keep
/// their tags; collectives that earlier placements needed are dropped.
CONSIST_API Program propagate_shardings(const Program& program);

/// The way in which ranks sum gradients.
struct Reduction {
  AxisSet axes;                    ///< of the mesh
  const Op* collective = nullptr;  ///< all_reduce or reduce_scatter, as the registry has it
  std::optional<DType> reduce_dtype;  ///< the dtype in which they are sent and summed; absent: their own
};

/// Delays instructions that make gradients of weights, and for which nothing else waits, until the last of `gradients` (tensors
/// of the step) is complete, so that compute is busy while that gradient is reduced. Takes them from the end of backward, as few
/// as keep compute busy while a rank sends that gradient and theirs, by estimate. Moves only gradients that are smaller and take
/// at least twice as long to make as to send; moves none past a collective that it may be meant to overlap, nor where recomputed
/// activations would be kept longer. Values and the order of sums do not change. Returns the new index of each instruction, by
/// its old one.
CONSIST_API std::vector<InstructionId> compute_beside_last_reduction(Program& step, std::span<const TensorId> gradients,
                                                                     const Reduction& reduction);

}  // namespace consist
