// Tells whether a program has changed.
#pragma once

#include <cstdint>

#include "consist/program.h"

namespace consist {

/// A hash of everything that verify() looks at: equal for equal programs, and for different ones with a chance of 2^-64. Not the
/// same in another process. Linear, and much faster than verify().
std::uint64_t content_of(const Program& program);

/// The same without the rank: equal for ranks that do the same with other parts of the tensors.
std::uint64_t content_of_any_rank(const Program& program);

}  // namespace consist
