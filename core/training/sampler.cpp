#include "core/training/sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "consist/error.h"
#include "consist/text.h"

namespace consist {
namespace {

std::int32_t largest(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());  // the first of equal ones
}

void check(std::span<const float> logits) {
  for (std::size_t token = 0; token < logits.size(); ++token) {
    if (std::isnan(logits[token]) || logits[token] == INFINITY)
      throw DataError("the model's logit of token " + std::to_string(token) + " is " +
                      (std::isnan(logits[token]) ? "no number" : "infinite") +
                      ": its weights are damaged, or too large for the precision");
  }
  if (logits.empty() || logits[static_cast<std::size_t>(largest(logits))] == -INFINITY)
    throw DataError("no logit of the model is finite: its weights are damaged");
}

}  // namespace

Sampler::Sampler(const SamplerSettings& settings) : settings_(settings), random_(settings.seed) {
  if (!(settings.temperature >= 0) || !std::isfinite(settings.temperature))
    throw UsageError("the temperature is " + fixed_text(settings.temperature, 3) + "; it must be at least 0");
  if (!(settings.top_p > 0 && settings.top_p <= 1))
    throw UsageError("top-p is " + fixed_text(settings.top_p, 3) + "; it must be above 0 and at most 1");
  if (settings.top_k < 0) throw UsageError("top-k is " + std::to_string(settings.top_k) + "; it must be at least 0");
}

std::int32_t Sampler::next(std::span<const float> logits) {
  check(logits);
  if (settings_.temperature == 0) return largest(logits);
  const double most = logits[static_cast<std::size_t>(largest(logits))];
  candidates_.clear();
  for (std::size_t token = 0; token < logits.size(); ++token)
    candidates_.emplace_back(std::exp((logits[token] - most) / settings_.temperature), static_cast<std::int32_t>(token));
  const auto before = [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; };
  const bool orders = settings_.top_k > 0 || settings_.top_p < 1;
  if (orders) std::sort(candidates_.begin(), candidates_.end(), before);
  if (settings_.top_k > 0 && static_cast<std::size_t>(settings_.top_k) < candidates_.size()) {
    const double least = candidates_[static_cast<std::size_t>(settings_.top_k) - 1].first;
    std::erase_if(candidates_, [&](const auto& candidate) { return candidate.first < least; });
  }
  double sum = 0;
  for (const auto& [weight, token] : candidates_) sum += weight;
  if (settings_.top_p < 1) {
    double kept = 0;
    std::size_t count = 0;
    while (count < candidates_.size() && (count == 0 || kept < settings_.top_p * sum)) kept += candidates_[count++].first;
    candidates_.resize(count);
    sum = kept;
  }
  constexpr double steps = 9007199254740992.0;  // 2^53
  double left = static_cast<double>(random_() >> 11) / steps * sum;
  for (const auto& [weight, token] : candidates_) {
    left -= weight;
    if (left < 0) return token;
  }
  return std::max_element(candidates_.begin(), candidates_.end(), [&](const auto& a, const auto& b) { return before(b, a); })
      ->second;
}

}  // namespace consist
