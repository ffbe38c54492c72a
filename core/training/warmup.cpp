// The rise of the learning rate that schedules share.
#include <cmath>

#include "consist/schedule.h"

namespace consist {

Schedule::~Schedule() = default;

Warmup::Warmup(const Options& options)
    : steps_(options.integer("warmup")), shape_(options.text("warmup-shape") == "log" ? Shape::log : Shape::linear) {
  if (options.has("warmup-from")) from_ = options.real("warmup-from");
}

double Warmup::rate(std::int64_t point, double peak) const noexcept {
  const double k = static_cast<double>(point), w = static_cast<double>(steps_);
  if (shape_ == Shape::linear && !from_) return peak * (k + 1) / (w + 1);
  const double share = shape_ == Shape::linear ? k / w : point == 0 ? 0.0 : std::log(k + 1) / std::log(w);
  const double from = from_.value_or(0);
  return from + (peak - from) * share;
}

std::string Warmup::describe() const {
  return steps_ == 0 ? "" : " after " + std::to_string(steps_) + (steps_ == 1 ? " step" : " steps") + " of warm-up";
}

}  // namespace consist
