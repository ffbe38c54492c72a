// Fits a device's clock to its load, from the times of equal instructions at different places in steps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/measure/step_samples.h"

namespace consist::launch {

struct ThrottlingFit {
  double lag = 0;                        ///< seconds, as DeviceRates::Throttling; 0: nothing of the kind is seen
  double memory_bound = 0;               ///< as DeviceRates::Throttling
  std::map<std::string, double> demand;  ///< by OpSample::kind; 0 for those that are not in it
  double unexplained = 0,
         before = 0;  ///< relative deviation of equal instructions from each other, root mean square: with this and without

  double demand_of(const OpSample& sample) const;
  /// Growth of the sample's time with the load.
  double sensitivity_of(const OpSample& sample) const;
};

/// `steps`: the samples of each step, in order of execution; a step is taken to be repeated. Instructions of one op, dtype and
/// cost have one time but for the load. If the fit explains little of their deviations, `lag` is 0.
ThrottlingFit fit_throttling(const std::vector<std::vector<OpSample>>& steps);

/// For people.
std::string text_of(const ThrottlingFit& fit);

/// The mean load during each sample of a step.
std::vector<double> loads_of(const std::vector<OpSample>& step, const ThrottlingFit& fit);

}  // namespace consist::launch
