// What kernels keep beside their tensors.
#pragma once

#include <cstdint>

#include "consist/program.h"

namespace consist {

/// Of attention on GPUs with a sequence in zigzag order: keys and values in order of position, and their gradients once for each of the
/// two chunks of a rank; of attention to a part of the keys what it makes of that part before it is merged. 0 for all other
/// instructions. Each byte is written once and read once.
std::int64_t bytes_beside_attention(const Program& program, const Instruction& i);

}  // namespace consist
