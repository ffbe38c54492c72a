// The best configuration on a machine that is a little slower or faster than its file says.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "consist/cost.h"

namespace consist::launch {

/// With all links, within nodes and between them, and the device's clock at these multiples of their rates. Instructions that
/// compute follow the clock, those that only move data by DeviceRates::Throttling::memory_bound.
Machine with_rates(Machine machine, double links, double clock);

/// A machine with one rate changed by 5%.
struct OtherRates {
  std::string change;    ///< "links 5% slower"
  std::size_t best = 0;  ///< the best row there: an index into SearchResult::candidates
  double gain = 0;       ///< of that row over the first one, by the objective: fraction
};
struct RateChange {
  std::string change;
  std::shared_ptr<const Machine> machine;
};
/// Links, if `has_links`, and clock, 5% slower and faster.
std::vector<RateChange> rate_changes(const Machine& machine, bool has_links);

/// For people, by the rows' options: "The first row stays the best with links or clock 5% slower or faster."
std::string text_of(const std::vector<OtherRates>& rates, const std::vector<std::string>& rows);

}  // namespace consist::launch
