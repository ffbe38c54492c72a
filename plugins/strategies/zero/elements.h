// Sizes of flat tensors.
#pragma once

#include "consist/program.h"

namespace consist::zero {

/// Elements that a rank has of `tensor` when it is gathered along `axes`.
inline std::int64_t whole_elements(const Program& program, TensorId tensor, AxisSet axes) {
  Placements placements = program[tensor].placements;
  placements.set(axes, Placement::replicate());
  return local_shape(program[tensor].shape, placements, program.mesh).elements();
}

}  // namespace consist::zero
