// Messages between neighbours on the pipeline's axis.
#pragma once

#include "consist/builder.h"
#include "consist/program.h"

namespace consist::pipeline {

/// The neighbour of `coordinate` on the axis; the first one follows the last.
inline int next_on(const Mesh& mesh, int axis, int coordinate) {
  return (coordinate + 1) % mesh.size_of(axis);
}

/// Emits a send of `tensor` on a lane that sends.
void emit_send(Builder& builder, TensorId tensor, int axis, Lane lane);
/// Emits a receive of a tensor of the type, placements and role of `like` on a lane that receives. Returns it.
TensorId emit_receive(Builder& builder, TensorId like, int axis, Lane lane);

}  // namespace consist::pipeline
