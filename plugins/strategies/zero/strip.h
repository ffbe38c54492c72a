// Removes the gathers and reductions that propagation inserted for ZeRO, one by one where they are needed, and notes what they
// did, so that they can be inserted again in buckets and in time.
#pragma once

#include <cstddef>
#include <vector>

#include "consist/program.h"

namespace consist::zero {

/// An input that needs a flat parameter unsharded.
struct Use {
  InstructionId instruction;
  std::size_t input;
  TensorId source;      ///< the flat state, or a tensor made of states alone once per step
  InstructionId ready;  ///< the instruction that makes the source, -1: it exists from the start
};

/// The gradient of a parameter from one micro-batch: a summand of each rank, before it is reduced and sharded.
struct PartialGradient {
  std::size_t parameter;
  TensorId whole;       ///< partial on the axes
  InstructionId ready;  ///< the instruction that completes it
  bool first;           ///< of the step: later ones are added to it
  DType dtype;          ///< in which micro-batches are summed
};

/// Instructions are those of the program without the gathers and reductions.
struct Stripped {
  std::vector<Use> uses;                   ///< in program order
  std::vector<PartialGradient> gradients;  ///< in the order in which they become ready
};

/// Removes from `step` the all_gathers along `axes` of flat states and of tensors made of them once per step, the reduce_scatters
/// of gradients along it, and the additions of their results over micro-batches. Parameter::gradient of the parameters concerned
/// is left for the caller to set; inputs that were gathered must be. Gradients that are reduced otherwise are left alone.
Stripped strip(Program& step, AxisSet axes);

}  // namespace consist::zero
