// What forward leaves for backward: the storages of activations, and when they are touched.
#pragma once

#include <cstdint>
#include <vector>

#include "consist/program.h"

namespace consist {

/// A storage of activations that nothing touches between forward and backward.
struct Kept {
  TensorId storage = no_tensor;
  std::vector<TensorId> values;  ///< made in forward and read in backward; they lie in the storage beside each other
  std::vector<TensorId> later;   ///< made in the same storage in backward
  /// The instruction of forward behind which it is written, on the queue of compute: where a message brings it, the first one
  /// that reads it, since messages are asked for long before they come.
  InstructionId written = -1;
  InstructionId last_forward = -1;  ///< the last one that names it
  InstructionId first_use = -1;     ///< the first one of backward that does
  std::int16_t micro_batch = -1;
  std::int16_t layer = -1;  ///< whose backward part is the first to use it; -1: none's
  bool waits = false;       ///< other layers or micro-batches are computed between its write and its first use
  std::int64_t bytes = 0;   ///< of the values, on this rank
};

/// Those of a step in the order of its instructions, in which micro-batches may alternate. Not what follows from parameters and
/// constants alone, nor inputs, states and metrics.
std::vector<Kept> kept_activations(const Program& step);

}  // namespace consist
