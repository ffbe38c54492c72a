// Tells whether a program has changed.
#pragma once

#include <cstdint>

#include "consist/program.h"

namespace consist {

/// A hash of everything that verify() looks at: equal for equal programs, and for different ones with a chance of 2^-64. Not the
/// same in another process. Linear, and much faster than verify().
std::uint64_t content_of(const Program& program);

}  // namespace consist
