// Activations that forward keeps for backward: their storages, and the instructions that touch them.
#pragma once

#include <cstdint>
#include <vector>

#include "consist/program.h"

namespace consist {

/// A storage of activations that no instruction touches between forward and backward.
struct Kept {
  TensorId storage = no_tensor;
  std::vector<TensorId> values;  ///< made in forward and read in backward; they lie in the storage beside each other
  std::vector<TensorId> later;   ///< made in the same storage in backward
  /// The instruction of forward behind which it is written, on the queue of compute: of a received one the first
  /// instruction that reads it, since receives are posted long before messages arrive.
  InstructionId written = -1;
  InstructionId last_forward = -1;  ///< the last one that names it
  InstructionId first_use = -1;     ///< the first one of backward that does
  std::int16_t micro_batch = -1;
  std::int16_t layer = -1;  ///< whose backward part is the first to use it; -1: none's
  bool waits = false;       ///< other layers or micro-batches are computed between its write and its first use
  std::int64_t bytes = 0;   ///< of the values, on this rank
};

/// Finds those of a step in the order of its instructions, in which micro-batches may alternate. Leaves out tensors that follow
/// from parameters and constants alone, inputs, states and metrics.
std::vector<Kept> kept_activations(const Program& step);

}  // namespace consist
