// Sizes of flat tensors.
#pragma once

#include "consist/program.h"

namespace consist::zero {

/// Elements that a rank has of `tensor` when it is gathered along `axis`.
inline std::int64_t whole_elements(const Program& program, TensorId tensor, int axis) {
  Placements placements = program[tensor].placements;
  placements[axis] = Placement::replicate();
  return local_shape(program[tensor].shape, placements, program.mesh).elements();
}

}  // namespace consist::zero
