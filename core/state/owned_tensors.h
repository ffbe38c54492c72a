// Tensors of which each rank saves its part.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "consist/program.h"
#include "core/state/training_state.h"
#include "core/weights/safetensors.h"

namespace consist {

/// True if the rank holds all elements of the tensor.
bool is_whole(const Program& program, TensorId tensor);

/// The tensors that a rank writes: its own parts, or all of what no other rank has before it, of `ranks` if there are any, else
/// of all ranks.
struct OwnedTensors {
  std::span<const int> ranks = {};
  using Read = std::function<void(void* to, std::int64_t first, std::int64_t count)>;

  std::vector<TensorSource> sources;
  std::map<std::string, std::string> parts;  ///< see tensor_parts.h

  /// Adds `tensor` of the program if the rank owns it; `read` gives its elements in `dtype`, counted as they lie on this rank.
  void add(const Program& program, int rank, const std::string& name, TensorId tensor, DType dtype, Read read);
  /// Adds a value that every rank has for itself; `name` is this rank's alone.
  void add_own(const std::string& name, const TrainingState::Value& value, Read read);

  std::int64_t bytes() const;  ///< of all elements
};

/// The values that a checkpoint needs of this rank; they are read from `state`, which outlives them. `ranks`: those that write a
/// checkpoint without the others, as far as they need it themselves; none: all.
OwnedTensors owned_values(TrainingState& state, int rank, std::span<const int> ranks = {});

}  // namespace consist
