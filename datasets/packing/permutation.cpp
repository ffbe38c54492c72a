#include "datasets/packing/permutation.h"

#include "consist/error.h"

namespace consist::packing {
namespace {

constexpr int rounds = 6;

/// SplitMix64's output function (Steele, Lea & Flood, 2014).
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

Permutation::Permutation(std::int64_t n, std::uint64_t key) : n_(static_cast<std::uint64_t>(n)), key_(key), half_bits_(1) {
  if (n < 1 || n > std::int64_t{1} << 62) throw Error("a permutation of " + std::to_string(n) + " things");
  while ((std::uint64_t{1} << (2 * half_bits_)) < n_) ++half_bits_;
}

std::int64_t Permutation::operator()(std::int64_t index) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t next = left ^ (mix(mix(key_ + round * 0x9e3779b97f4a7c15ULL) ^ right) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= n_);
  return static_cast<std::int64_t>(value);
}

std::int64_t place_in_stream(std::int64_t index, std::int64_t count, std::uint64_t seed) {
  const auto epoch = static_cast<std::uint64_t>(index / count);
  return Permutation(count, seed * 0x9e3779b97f4a7c15ULL + epoch)(index % count);
}

}  // namespace consist::packing
