// Code that the schedules with a warm-up and one decay share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <string>

#include "consist/options.h"
#include "consist/schedule.h"

namespace consist::schedules {

/// The point of a schedule at which a step is.
class Counting {
 public:
  explicit Counting(const Options& options) : late_(options.text("counting") == "deepspeed") {}

  /// own: as many as steps are done. deepspeed: one fewer, since DeepSpeed moves its schedules on after the optimizer's step, so
  /// that the first two steps are alike. (deepspeed/runtime/engine.py, DeepSpeed 0.19.6)
  std::int64_t point(std::int64_t done) const noexcept { return late_ ? std::max<std::int64_t>(done - 1, 0) : done; }
  /// Points by which DeepSpeed's cosine decay counts ahead, which makes up for it. (deepspeed/runtime/lr_schedules.py)
  std::int64_t ahead() const noexcept { return late_ ? 1 : 0; }

 private:
  bool late_;
};

/// The share of a decay that is done `point` points into `length`: 0..1.
inline double done_of(std::int64_t point, std::int64_t length) noexcept {
  return std::clamp(static_cast<double>(point) / static_cast<double>(std::max<std::int64_t>(length, 1)), 0.0, 1.0);
}

/// The step at which a decay has ended, in a run of `steps` steps: the option decay-until, or the run's end.
class DecayEnd {
 public:
  explicit DecayEnd(const Options& options) : until_(options.integer("decay-until")) {}
  std::int64_t of(std::int64_t steps) const noexcept { return until_ > 0 ? until_ : steps; }

 private:
  std::int64_t until_;
};

/// The rate with `left`, 0..1, of the way from `peak` down to the share `last` of the peak still to go.
inline double decayed(double peak, double last, double left) noexcept {
  return peak * (last + (1.0 - last) * left);
}

/// The rate's remaining share, 1..0, of a decay along half a period of a cosine of which `done`, 0..1, is done.
inline double left_of_cosine(double done) noexcept {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

/// A warm-up, and one decay over the rest of the steps to a share of the peak. `left` is called with the share of the decay that
/// is done. `counts_ahead`: as Counting::ahead() says.
class FinalDecay : public Schedule {
 public:
  double rate(std::int64_t done, std::int64_t steps, double peak) const override {
    const std::int64_t point = counting_.point(done);
    if (point < warmup_.steps()) return warmup_.rate(point, peak);
    return decayed(peak, last_, left_(done_of(point + ahead_ - warmup_.steps(), end_.of(steps) - warmup_.steps())));
  }
  std::string describe() const override {
    char text[60];
    std::snprintf(text, sizeof text, "%s to %g of the peak", name_, last_);
    return text + warmup_.describe();
  }

 protected:
  FinalDecay(const Options& options, const char* name, double (*left)(double), bool counts_ahead)
      : warmup_(options),
        counting_(options),
        end_(options),
        last_(options.real("final-rate")),
        name_(name),
        left_(left),
        ahead_(counts_ahead ? counting_.ahead() : 0) {}

 private:
  Warmup warmup_;
  Counting counting_;
  DecayEnd end_;
  double last_;
  const char* name_;
  double (*left_)(double);
  std::int64_t ahead_;
};

}  // namespace consist::schedules

#define CONSIST_FINAL_RATE_OPTION \
  { "final-rate", consist::OptionKind::real, "0.1", "at the end, as a fraction of the peak", "0..1" }

#define CONSIST_DECAY_UNTIL_OPTION                                                \
  {                                                                               \
    "decay-until", consist::OptionKind::integer, "0",                             \
        "step at which the decay has ended, behind which the rate stays; 0: the " \
        "run's last",                                                             \
        "0.."                                                                     \
  }

#define CONSIST_COUNTING_OPTION                                                                                           \
  {                                                                                                                       \
    "counting", consist::OptionKind::choice, "own", "deepspeed: a step later, as its schedulers move on after each step", \
        "own|deepspeed"                                                                                                   \
  }
