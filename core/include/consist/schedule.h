// Learning-rate schedules: the rate of each step, from the number of steps that are done and that of the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "consist/export.h"
#include "consist/options.h"

namespace consist {

/// The plugin kind "schedule". THREADS: any. The same answer each time and on every rank. A schedule has no state: a run
/// that resumes asks for the rate at the number of steps that are done, also where the steps before had another schedule, other
/// options or another total. The rate may jump there, and the run says so.
class CONSIST_API Schedule {
 public:
  virtual ~Schedule();

  /// The learning rate of the step that follows `done` steps (0 for the first), in a run of `steps` steps, at least one. `done`
  /// may reach and pass `steps`: the rate then stays at the schedule's end. `peak` is --learning-rate, 0 or more. The result must
  /// be finite, at least 0 and at most 1e6; the host refuses any other with the plugin's name. Called before each step: it must
  /// not allocate.
  virtual double rate(std::int64_t done, std::int64_t steps, double peak) const = 0;

  /// One line for the log: "cosine to 0.1 of the peak after 100 steps of warm-up".
  virtual std::string describe() const = 0;
};

/// The rise at the start of a run, which schedules share. Over w steps the rate goes from `from` to the peak: at point k it is
/// from + (peak - from) * share, where share is k/w (linear: the peak is at point w) or log(k+1)/log(w) (log: at point w-1).
class CONSIST_API Warmup {
 public:
  enum class Shape { linear, log };

  Warmup() = default;
  /// `from`: absent, linear warm-up begins one step above 0, at peak/(w+1), and log at 0.
  Warmup(std::int64_t steps, Shape shape, std::optional<double> from) : steps_(steps), shape_(shape), from_(from) {}
  /// From the options of CONSIST_WARMUP_OPTIONS.
  explicit Warmup(const Options& options);

  std::int64_t steps() const noexcept { return steps_; }
  /// The rate at `point`, which must lie in [0, steps()).
  double rate(std::int64_t point, double peak) const noexcept;
  /// " after 100 steps of warm-up", empty without one.
  std::string describe() const;

 private:
  std::int64_t steps_ = 0;
  Shape shape_ = Shape::linear;
  std::optional<double> from_;
};

}  // namespace consist

/// Rows of a plugin's option table, for Warmup.
#define CONSIST_WARMUP_OPTIONS                                                                                             \
  {"warmup", consist::OptionKind::integer, "0", "steps in which the rate rises to the peak", "0.."},                       \
      {"warmup-shape", consist::OptionKind::choice, "linear", "of the rise", "linear|log"}, {                              \
    "warmup-from", consist::OptionKind::real, "", "rate at which the rise begins; else linear one step above 0, log at 0", \
        "0..1e6"                                                                                                           \
  }
