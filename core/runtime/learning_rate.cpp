#include "core/runtime/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "consist/error.h"

namespace consist {
namespace {

constexpr const char* decays[] = {"constant", "linear", "cosine"};
constexpr const char* warmups[] = {"linear", "log"};
constexpr const char* countings[] = {"own", "deepspeed"};

template <typename Kind, std::size_t N>
Kind kind_of(const char* const (&names)[N], const std::string& name, const char* what, const char* legal) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) throw UsageError(std::string(what) + " '" + name + "' is unknown; choose " + legal);
  return static_cast<Kind>(found - std::begin(names));
}

double warmup_rate(const LearningRate& r, std::int64_t point) {
  const double k = static_cast<double>(point), w = static_cast<double>(r.warmup_steps);
  if (r.warmup == LearningRate::Warmup::linear && !r.warmup_from) return r.peak * (k + 1) / (w + 1);
  const double share = r.warmup == LearningRate::Warmup::linear ? k / w : point == 0 ? 0.0 : std::log(k + 1) / std::log(w);
  const double from = r.warmup_from.value_or(0);
  return from + (r.peak - from) * share;
}

}  // namespace

double LearningRate::at(std::int64_t step) const {
  const bool late = counting == Counting::deepspeed;
  const std::int64_t point = late ? std::max<std::int64_t>(step - 1, 0) : step;
  if (point < warmup_steps) return warmup_rate(*this, point);
  if (decay == Decay::constant) return peak;
  const std::int64_t ahead = late && decay == Decay::cosine ? 1 : 0;
  const double length = static_cast<double>(std::max<std::int64_t>(steps - warmup_steps, 1));
  const double done = std::min(1.0, static_cast<double>(point + ahead - warmup_steps) / length);
  const double left = decay == Decay::linear ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return peak * (final_fraction + (1.0 - final_fraction) * left);
}

LearningRate::Decay decay_of(const std::string& name) {
  return kind_of<LearningRate::Decay>(decays, name, "the learning-rate schedule", "constant, linear or cosine");
}

LearningRate::Warmup warmup_of(const std::string& name) {
  return kind_of<LearningRate::Warmup>(warmups, name, "the shape of warm-up", "linear or log");
}

LearningRate::Counting counting_of(const std::string& name) {
  return kind_of<LearningRate::Counting>(countings, name, "the counting of a schedule's steps", "own or deepspeed");
}

const char* name_of(LearningRate::Decay decay) noexcept {
  return decays[static_cast<std::size_t>(decay)];
}

const char* name_of(LearningRate::Warmup warmup) noexcept {
  return warmups[static_cast<std::size_t>(warmup)];
}

const char* name_of(LearningRate::Counting counting) noexcept {
  return countings[static_cast<std::size_t>(counting)];
}

}  // namespace consist
