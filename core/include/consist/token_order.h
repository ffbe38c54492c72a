// The order of the tokens of a sequence (Program::zigzag), for code that depends on positions: tables of them, attention,
// batches.
#pragma once

#include <cstdint>

namespace consist {

/// The position of the token at `index` of a sequence of `length` tokens in zigzag order over `zigzag` ranks, or in order of
/// position where that is 0. REQUIRES: 0 <= index < length; 2·zigzag divides the length.
constexpr std::int64_t position_of(std::int64_t index, std::int64_t length, std::int64_t zigzag) noexcept {
  if (zigzag == 0) return index;
  const std::int64_t chunk = length / (2 * zigzag), pair = index / chunk / 2;
  const std::int64_t at = index / chunk % 2 == 0 ? pair : 2 * zigzag - 1 - pair;
  return at * chunk + index % chunk;
}

/// The index of the token at `position`: the inverse of position_of(), with the same requirements.
constexpr std::int64_t index_of(std::int64_t position, std::int64_t length, std::int64_t zigzag) noexcept {
  if (zigzag == 0) return position;
  const std::int64_t chunk = length / (2 * zigzag), at = position / chunk;
  const std::int64_t index = at < zigzag ? 2 * at : 2 * (2 * zigzag - 1 - at) + 1;
  return index * chunk + position % chunk;
}

}  // namespace consist
