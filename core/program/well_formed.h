// Checks that what a program refers to exists: the part of verify() which makes the rest of it, and every pass, safe to run.
#pragma once

#include <string>

#include "consist/analysis.h"
#include "consist/program.h"

namespace consist {

/// True if the program has a tensor of that id.
inline bool exists(const Program& program, TensorId id) noexcept {
  return id >= 0 && static_cast<std::size_t>(id) < program.tensors.size();
}

/// Throws ProgramError for ids out of range (tensors of instructions, parameters, constants and the loss), instructions without
/// an op or a tag, queues and axes that the mesh does not have, and a rank outside of it.
void check_ids(const Program& program);

/// Throws ProgramError that names the tensor for dtypes, roles and spaces that do not exist and for shapes that hold nothing or
/// more than can be counted.
void check_shape(const Program& program, TensorId id);

/// "tensor %5 'x': ", for messages.
std::string who_is(const Program& program, TensorId id);

/// Throws ProgramError for parameters and states without a name or of one name, and for states that are partial sums: a
/// checkpoint could not hold them.
void check_names(const Program& program, const DefUse& def_use);

}  // namespace consist
