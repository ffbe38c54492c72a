// Sizes of flat tensors.
#pragma once

#include "consist/program.h"

namespace consist::zero {

/// Elements that a rank has of `tensor` when its flat slices are gathered.
inline std::int64_t whole_elements(const Program& program, TensorId tensor) {
  Placements placements = program[tensor].placements;
  placements.set(placements.flat_axes(), Placement::replicate());
  return local_shape(program[tensor].shape, placements, program.mesh).elements();
}

}  // namespace consist::zero
