// Initial weights: a function of seed, parameter name and element index alone, so that every layout starts from the same model
// bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Elements [first, first + out.size()) of the parameter: mean + std·z, where z has mean 0, variance 1 and is very nearly normal:
/// the sum of eight 16-bit uniform numbers taken from two outputs of the SplitMix64 mixer (Steele, Lea & Flood, 2014) at counters
/// 2i and 2i+1. Integer arithmetic and one rounding, hence equal on every device. Callable from several threads.
CONSIST_API void initial_values(std::span<float> out, std::uint64_t seed, std::string_view name, std::int64_t first, float mean,
                                float std);

/// The same, distributed uniformly: mean + std·√3·u, where u is one 32-bit output of that mixer between -1 and 1.
CONSIST_API void initial_values_uniform(std::span<float> out, std::uint64_t seed, std::string_view name, std::int64_t first,
                                        float mean, float std);
/// Elements of a parameter, as it asks for them.
CONSIST_API void initial_values(std::span<float> out, std::uint64_t seed, const Parameter& parameter, std::int64_t first);

/// One way of computing mean + scale·(sum − center): `start` is the mixer's input for the first number of out[0].
using InitialValueLoop = void (*)(std::span<float> out, std::uint64_t start, float mean, float scale);

/// All that this processor can run, from the plainest to the one that initial_values() takes; they agree in every bit.
CONSIST_API std::vector<InitialValueLoop> initial_value_loops();

}  // namespace consist
