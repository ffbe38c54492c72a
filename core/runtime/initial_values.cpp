#include "core/runtime/initial_values.h"

#include <cmath>

namespace consist {
namespace {

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;

constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// FNV-1a: names differ in any byte, keys differ.
std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL ^ mix(seed + golden);
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix(hash);
}

constexpr std::int32_t sum_of_halves(std::uint64_t bits) {
  return static_cast<std::int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
}

}  // namespace

void initial_values(std::span<float> out, std::uint64_t seed, std::string_view name, std::int64_t first, float mean, float std) {
  if (std == 0.0F) {
    for (float& value : out) value = mean;
    return;
  }
  const std::uint64_t key = key_of(seed, name);
  // Eight uniforms on 0..65535: mean 8·65535/2, variance 8·(65536² − 1)/12.
  constexpr std::int32_t center = 4 * 65535;
  const float scale = std / static_cast<float>(std::sqrt(8.0 * (65536.0 * 65536.0 - 1.0) / 12.0));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t counter = 2 * (static_cast<std::uint64_t>(first) + i);
    const std::int32_t sum = sum_of_halves(mix(key + counter * golden)) + sum_of_halves(mix(key + (counter + 1) * golden));
    out[i] = mean + scale * static_cast<float>(sum - center);
  }
}

}  // namespace consist
