// Rows of a comparison that are simulated: in place of runs (compare --predict), or beside them.
#pragma once

#include <string>
#include <vector>

#include "consist/cost.h"
#include "core/config/run_config.h"
#include "core/plan/plan.h"
#include "launch/compare/outcome.h"

namespace consist::launch {

/// The outcome of a row that is not run: "finished", with the simulated step of the machine that --machine names (the reference
/// machine without it) as its one run, or "does not fit", with a change that makes it fit if one was found within seconds, or
/// "refused". `plan` is laid out; its target becomes that machine.
CompareOutcome predicted_outcome(const Plan& planned, PluginHost& host);

/// A step of the run in `archive`, simulated for `machine`, over the transports that its archive tells. `config` is the run's.
/// Throws what compiling throws.
struct PredictedRun {
  double seconds = 0;
  std::vector<std::string> kinds;  ///< kinds_of() the step
};
PredictedRun predicted_run(const RunConfig& config, const std::string& archive, PluginHost& host, Machine machine);

/// Seconds of a step of the run in `archive`, simulated for the machine that it was planned for: that of --machine, or that of
/// the run's device where one ships whose error is known. `unknown` without such a machine. `config` is the row's, settled.
double predicted_seconds(const RunConfig& config, const std::string& archive, PluginHost& host);

}  // namespace consist::launch
