// Alternatives, planned and simulated.
#pragma once

#include <cstdint>
#include <vector>

#include "launch/predict/alternatives.h"
#include "launch/predict/prediction.h"

namespace consist::launch {

struct Trial {
  Alternative alternative;
  Prediction prediction;
};

struct TrialLimits {
  double seconds = 0;  ///< none begins after so many; 0: no limit
  int threads = 1;
};

/// Plans the alternatives without a device, for the plan's machine, in their order; returns those that were planned in that
/// order. What is refused (sizes do not divide, parts do not go together) is left out.
std::vector<Trial> try_alternatives(const Plan& plan, PluginHost& host, std::vector<Alternative> alternatives,
                                    const TrialLimits& limits);

/// The plan itself as the trials see it: with the same parts and machine, and no device.
Plan without_device(const Plan& plan);

/// The memory that alternatives must fit.
struct Room {
  std::int64_t capacity = 0;  ///< bytes of device memory per rank; 0: not known
  std::int64_t besides = 0;   ///< bytes that a plan takes on the device beyond what its prediction says: scratch of kernels

  /// True if a rank's plan leaves at least the fraction `spare` of the capacity free.
  bool fits(const Prediction& prediction, double spare = 0) const {
    const auto needed = static_cast<double>(prediction.most_bytes() + besides);
    return capacity == 0 || needed <= (1 - spare) * static_cast<double>(capacity);
  }
};

/// The machine's.
Room room_of(const Machine& machine);

}  // namespace consist::launch
