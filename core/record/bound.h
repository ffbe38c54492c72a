// The rate that a run's speed is held against: the model's largest matrix product, alone on this rank's device.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "consist/export.h"

namespace consist {

struct Bound {
  double flops = 0;     ///< FLOP/s; 0: there is none
  std::string problem;  ///< why there is none; empty otherwise
};

/// Rates of several short looks at one product, in the order in which they were taken. The bound is the median of the looks that
/// reach 90% of the fastest, if those are more than half. A machine on which fewer do is doing other work: there is no bound.
CONSIST_API Bound bound_from_rates(std::span<const double> rates);

/// Calls `look` (which returns FLOP/s) five times, less often where that would take more than three seconds, for
/// bound_from_rates(). `waited` returns the seconds that this process's threads have waited for a processor so far, or a negative
/// number where that is not known or does not matter to the device: a bound during which they waited for more than 5% of the time
/// is none.
CONSIST_API Bound measure_bound(const std::function<double()>& look, const std::function<double()>& waited);

/// The matrix work of a run, per rank, from which on it gets a bound. Less takes a core of a processor about a second: nobody asks
/// how fast such a run could be, and measuring takes half a second.
inline constexpr double least_work_for_bound = 2e10;

/// The reason why a run of `flops` per rank has no bound; empty if it gets one.
CONSIST_API std::string too_short_for_bound(double flops);

/// Seconds that this process's living threads have been ready to run without a processor to run on; -1 where the kernel does not
/// count them.
CONSIST_API double seconds_waited_for_processor();

/// Returns the bound that is valid once the run is over: none if the steps themselves have passed it.
CONSIST_API Bound checked_bound(const Bound& bound, double model_flops);

}  // namespace consist
