// Frequencies and scales of the rotary embedding, with YaRN as transformers computes it.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "config.h"
#include "consist/layers.h"

namespace deepseek {
namespace {

double magnitude(double factor, double of) {
  return factor <= 1 ? 1 : 0.1 * of * std::log(factor) + 1;
}

/// Radians per position of each pair.
std::vector<float> frequencies_of(const Config& c) {
  std::vector<float> made = consist::layers::rope_frequencies(c.qk_rope_head_dim, c.rope_theta);
  const Yarn& yarn = c.yarn;
  if (!yarn.any()) return made;
  const auto channels = static_cast<double>(c.qk_rope_head_dim);
  const auto rotating = [&](double times) {  // the pair that turns so often over the first training's positions
    const double period = static_cast<double>(yarn.original_max_position_embeddings) / (times * 2 * std::numbers::pi);
    return channels * std::log(period) / (2 * std::log(c.rope_theta));
  };
  const double low = std::max(std::floor(rotating(yarn.beta_fast)), 0.0);
  double high = std::min(std::ceil(rotating(yarn.beta_slow)), channels - 1);
  if (high == low) high += 0.001;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto slowed = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
    made[i] = made[i] / static_cast<float>(yarn.factor) * slowed + made[i] * (1 - slowed);
  }
  return made;
}

/// The factor of rotated channels, of queries and keys alike.
double scale_of(const Yarn& yarn) {
  if (!yarn.any()) return 1;
  if (yarn.mscale == 0 || yarn.mscale_all_dim == 0) return magnitude(yarn.factor, 1);
  return magnitude(yarn.factor, yarn.mscale) / magnitude(yarn.factor, yarn.mscale_all_dim);
}

}  // namespace

void fill_rope_table(const Config& config, std::span<float> table) {
  const std::vector<float> frequencies = frequencies_of(config);
  const auto scale = static_cast<float>(scale_of(config.yarn));
  const std::size_t pairs = frequencies.size();
  for (std::size_t at = 0; at < table.size(); at += 2 * pairs) {
    const auto position = static_cast<float>(at / (2 * pairs));
    for (std::size_t i = 0; i < pairs; ++i) {
      table[at + i] = scale * std::cos(position * frequencies[i]);
      table[at + pairs + i] = scale * std::sin(position * frequencies[i]);
    }
  }
}

double Config::score_scale() const {
  const double scale = 1 / std::sqrt(static_cast<double>(qk_head_dim()));
  if (version == 2 || !yarn.any() || yarn.mscale_all_dim == 0) return scale;  // transformers leaves it out for DeepSeek-V2
  const double of_scores = magnitude(yarn.factor, yarn.mscale_all_dim);
  return scale * of_scores * of_scores;
}

}  // namespace deepseek
