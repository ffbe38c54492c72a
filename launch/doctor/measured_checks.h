// Checks of what was measured: against the machine's file, and of each device and link against its equals.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "launch/doctor/report.h"
#include "launch/measure/short_figures.h"

namespace consist::doctor {

/// A machine's file; Machine is here the host that is looked at.
using MachineRates = consist::Machine;

struct MeasuredCheck {
  Result result;
  /// The base machine with what this check is about as it was measured; nothing where that cannot be said.
  std::optional<MachineRates> with = std::nullopt;
  /// The same if `slow` were left out; nothing where nothing is to be left out.
  std::optional<MachineRates> without = std::nullopt;
  std::string slow = {};          ///< "rank 3 (node07)"
  std::set<int> slow_nodes = {};  ///< RankFigures::node
};

/// In a fixed order, whatever they find.
std::vector<MeasuredCheck> measured_checks(const launch::ShortFigures& figures);

/// The base machine with all that was measured; where the base is not of this device, with what is slow among equals.
MachineRates with_all(const launch::ShortFigures& figures);

/// The finding of a measurement that has failed.
Result failed_measurement(const std::string& problem);

}  // namespace consist::doctor
