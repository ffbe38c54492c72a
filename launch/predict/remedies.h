// Changes that make a plan fit a machine's memory.
#pragma once

#include <string>
#include <vector>

#include "launch/predict/prediction.h"

namespace consist::launch {

/// A change of a configuration, with what it was compiled and simulated to.
struct Remedy {
  std::string options;  ///< "--recompute full"
  Prediction prediction;
};

/// Changes of `plan`'s configuration that fit the machine, the fastest first; each was planned. Those that its parts refuse are
/// passed over.
std::vector<Remedy> remedies_for(const Plan& plan, PluginHost& host);

/// "'--recompute full' fits: 74.0 GiB, 3% slower": a line for each, as against `asked`, which does not fit.
std::string text_of(const std::vector<Remedy>& remedies, const Prediction& asked);

}  // namespace consist::launch
