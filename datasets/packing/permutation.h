// A pseudo-random order of 0..n-1 that can be read at any place without being stored.
#pragma once

#include <cstdint>

namespace consist::packing {

/// A bijection of [0, n) fixed by its key: a Feistel network over the next power of four, walked until it falls back into the
/// range (Black & Rogaway, 2002). Immutable; O(1) memory and, on average, at most four rounds of the network per call.
class Permutation {
 public:
  /// `n` in [1, 2^62].
  Permutation(std::int64_t n, std::uint64_t key);
  /// `index` in [0, n).
  std::int64_t operator()(std::int64_t index) const noexcept;

 private:
  std::uint64_t n_, key_;
  int half_bits_;
};

/// Element `index` of the endless stream of `count` elements, of which each epoch has an order of its own by `seed`.
std::int64_t place_in_stream(std::int64_t index, std::int64_t count, std::uint64_t seed);

}  // namespace consist::packing
