// Ops of plugins that have no formula here, by their own kernels for the device cpu (consist/kernel_registry.h).
#pragma once

#include <set>
#include <string>

#include "core/interpreter/arena.h"

namespace consist::interpreter {

/// Computes instruction `id` by the kernel that a kernel set of this process has for it: one for f32 if there is one, since it rounds
/// least, else one for the program's dtypes. False if there is none. Throws what the kernel throws.
bool compute_by_kernel(Arena& arena, InstructionId id);

/// The ops of a program that no formula here is for.
std::set<std::string> ops_without_formula(const Program& program);

}  // namespace consist::interpreter
