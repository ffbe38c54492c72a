#include "core/state/initial_values.h"

#include <algorithm>
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

/// Adds pairs of four 16-bit numbers: the first and second into the lower half of the bits, the others into the upper half.
constexpr std::uint64_t sums_of_pairs(std::uint64_t bits) {
  constexpr std::uint64_t every_other = 0x0000ffff0000ffffULL;
  return (bits & every_other) + (bits >> 16 & every_other);
}

/// Inlined into functions for different instruction sets, for each of which the compiler makes vectors of it.
[[gnu::always_inline]] inline void loop(std::span<float> out, std::uint64_t start, float mean, float scale) {
  // Eight uniforms on 0..65535 have the mean 8·65535/2.
  constexpr std::int32_t center = 4 * 65535;
  float* const values = out.data();
  const std::size_t count = out.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t z = start + i * (2 * golden);
    const std::uint64_t sums = sums_of_pairs(mix(z)) + sums_of_pairs(mix(z + golden));
    const auto sum = static_cast<std::int32_t>(sums) + static_cast<std::int32_t>(sums >> 32);
    values[i] = mean + scale * static_cast<float>(sum - center);
  }
}

void plain(std::span<float> out, std::uint64_t start, float mean, float scale) {
  loop(out, start, mean, scale);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void with_avx2(std::span<float> out, std::uint64_t start, float mean, float scale) {
  loop(out, start, mean, scale);
}
// AVX512DQ is the extension that multiplies 64-bit integers.
[[gnu::target("avx2,avx512f,avx512dq,avx512vl")]] void with_avx512(std::span<float> out, std::uint64_t start, float mean,
                                                                   float scale) {
  loop(out, start, mean, scale);
}
#endif

}  // namespace

std::vector<InitialValueLoop> initial_value_loops() {
  std::vector<InitialValueLoop> loops{plain};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) loops.push_back(with_avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    loops.push_back(with_avx512);
#endif
  return loops;
}

void initial_values(std::span<float> out, std::uint64_t seed, std::string_view name, std::int64_t first, float mean, float std) {
  if (std == 0.0F) {
    std::fill(out.begin(), out.end(), mean);
    return;
  }
  static const InitialValueLoop fastest = initial_value_loops().back();
  // Eight uniforms on 0..65535 have the variance 8·(65536² − 1)/12.
  const float scale = std / static_cast<float>(std::sqrt(8.0 * (65536.0 * 65536.0 - 1.0) / 12.0));
  fastest(out, key_of(seed, name) + 2 * static_cast<std::uint64_t>(first) * golden, mean, scale);
}

void initial_values_uniform(std::span<float> out, std::uint64_t seed, std::string_view name, std::int64_t first, float mean,
                            float std) {
  const std::uint64_t start = key_of(seed, name) + 2 * static_cast<std::uint64_t>(first) * golden;
  const double scale = std * std::sqrt(3.0) / 2147483648.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto u = static_cast<std::int64_t>(mix(start + i * (2 * golden)) >> 32) - 2147483648LL;
    out[i] = mean + static_cast<float>(scale * (static_cast<double>(u) + 0.5));
  }
}

void initial_values(std::span<float> out, std::uint64_t seed, const Parameter& p, std::int64_t first) {
  const auto fill =
      p.init_uniform
          ? initial_values_uniform
          : static_cast<void (*)(std::span<float>, std::uint64_t, std::string_view, std::int64_t, float, float)>(initial_values);
  // A frozen model begins with the weights with which a trained one of that kind would begin.
  const std::string_view name = std::string_view(p.name).substr(p.model.empty() ? 0 : p.model.size() + 1);
  fill(out, seed, name, first, p.init_mean, p.init_std);
}

}  // namespace consist
