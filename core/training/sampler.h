// The choice of a token by the logits of a model.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "consist/export.h"

namespace consist {

struct SamplerSettings {
  double temperature = 1;  ///< logits are divided by it; 0: the largest logit, of equal ones the smallest token
  std::int64_t top_k = 0;  ///< only the largest so many logits (and those equal to the last of them); 0: all
  double top_p = 1;        ///< only the most probable tokens whose probabilities together reach it, at least one
  std::uint64_t seed = 0;
};

/// Draws tokens, the same ones for the same seed and logits on every machine whose exp() is the same. `top_k` is applied before
/// `top_p`, both to the logits over the temperature. Not thread-safe.
class CONSIST_API Sampler {
 public:
  /// Throws UsageError for settings that are out of range.
  explicit Sampler(const SamplerSettings& settings);
  /// Throws DataError if a logit is not a number, or none is finite.
  std::int32_t next(std::span<const float> logits);

 private:
  SamplerSettings settings_;
  std::mt19937_64 random_;  // whose numbers the standard states
  std::vector<std::pair<double, std::int32_t>> candidates_;
};

}  // namespace consist
