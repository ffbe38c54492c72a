#include "core/runtime/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "consist/error.h"

namespace consist {

double LearningRate::at(std::int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  if (decay == Decay::constant) return peak;
  const double length = static_cast<double>(std::max<std::int64_t>(steps - warmup_steps, 1));
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / length);
  const double left = decay == Decay::linear ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return peak * (final_fraction + (1.0 - final_fraction) * left);
}

LearningRate::Decay decay_of(const std::string& name) {
  if (name == "constant") return LearningRate::Decay::constant;
  if (name == "linear") return LearningRate::Decay::linear;
  if (name == "cosine") return LearningRate::Decay::cosine;
  throw UsageError("the learning-rate schedule '" + name + "' is unknown; choose constant, linear or cosine");
}

}  // namespace consist
