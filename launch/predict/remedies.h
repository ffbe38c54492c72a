// Changes that make a plan fit a machine's memory.
#pragma once

#include <string>
#include <vector>

#include "launch/predict/prediction.h"
#include "launch/predict/trials.h"

namespace consist::launch {

/// A change of a configuration, with what it was compiled and simulated to.
struct Remedy {
  std::string options;  ///< "--recompute full"
  Prediction prediction;
  std::string caution;  ///< as Alternative::caution
};

/// Alternatives to `plan` that fit the room, the fastest first; each was planned. Those that its parts refuse are passed over,
/// and those that take more memory than one which is as fast and leaves the training as it is.
std::vector<Remedy> remedies_for(const Plan& plan, PluginHost& host, const Room& room, const TrialLimits& limits);
/// For the plan's machine, on as many threads as there are cores.
std::vector<Remedy> remedies_for(const Plan& plan, PluginHost& host);

/// "'--recompute full' fits: 74.0 GiB, 3% slower": a line for each, as against `asked`, which does not fit.
std::string text_of(const std::vector<Remedy>& remedies, const Prediction& asked);
/// Error text for a plan that does not fit its machine, of commands without a device: what it needs, and what makes it fit.
std::string refusal_of(const Plan& plan, PluginHost& host, const Prediction& asked);

}  // namespace consist::launch
