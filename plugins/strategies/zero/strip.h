// Takes a step apart for ZeRO: the gathers and reductions that placements brought about, one by one where they are needed, are
// removed, and what they did is noted, so that they can be put back in buckets and in time.
#pragma once

#include <cstddef>
#include <vector>

#include "consist/program.h"

namespace consist::zero {

/// An input that must be the whole of a parameter that lies flat.
struct Use {
  InstructionId instruction;
  std::size_t input;
  TensorId source;      ///< the flat state, or what is made of states alone once per step
  InstructionId ready;  ///< the instruction that makes the source, -1: it is there from the start
};

/// The gradient of a parameter from one micro-batch: a summand of each rank, before the ranks' are added and divided.
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

/// Removes from `step` the all_gathers along `axes` of flat states and of what is made of them once per step, the reduce_scatters
/// of gradients along it, and the additions of their results over micro-batches. Parameter::gradient of the parameters concerned
/// is left for the caller to set; inputs that were gathered must be. Gradients that are reduced otherwise are left alone.
Stripped strip(Program& step, AxisSet axes);

}  // namespace consist::zero
