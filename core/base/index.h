// Signed numbers, of tensors, instructions and layers, as places in vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace consist {

/// `i` is not negative.
constexpr std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace consist
