// Duration of a run's start, by part.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "consist/export.h"

namespace consist {

/// Seconds since this process was started, by the kernel's count; 0 if it does not say.
CONSIST_API double seconds_since_start();

/// The clock runs from the start of the process; each part begins where the one before it ended. Used from one thread.
class CONSIST_API StartTimes {
 public:
  /// Part "process" (loading the program, reading its options, joining the job) has lasted `seconds` and ends here.
  explicit StartTimes(double process_seconds = seconds_since_start());
  void finished(std::string part);

  const std::vector<std::pair<std::string, double>>& parts() const noexcept { return parts_; }
  /// {"seconds": 24.103, "process": 0.81, ...}: `total` and each part, in seconds.
  std::string json(double total) const;
  /// A line for people, without parts too short to matter; empty if `total` is no longer than what nobody asks about.
  std::string text(double total) const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  std::vector<std::pair<std::string, double>> parts_;
};

}  // namespace consist
