// Runs that a machine file is learned from: read from their archives, and predicted by the file that the others give.
#pragma once

#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/host.h"
#include "core/config/run_config.h"
#include "core/cost/power.h"
#include "core/cost/step_errors.h"
#include "launch/residual/learn.h"

namespace consist::launch {

/// A run and what was predicted of its step, in seconds.
struct LearnedRun {
  std::string archive;
  RunConfig config;
  StepParts step;
  double clock = 0;  ///< Hz, mean of the steady state; 0: not known
  double measured = 0;
  double before = 0;    ///< by the machine that it was planned for
  double held_out = 0;  ///< by the one that the others teach
  std::vector<std::string> kinds;
};

struct LearnedFile {
  std::string base;  ///< of whom the rest is taken, as --machine takes it
  Machine machine;
  Power power;
  StepErrors errors_before, errors;  ///< of the base; of the held out runs, of kinds with enough of them
  LearnedOps ops;
  std::vector<LearnedRun> runs;

  /// Held out runs are nearer to what was measured than the base's predictions, by their mean squares.
  bool is_better() const;
};

/// Reads the archives and learns from all of them; each is also predicted by what the others teach. Throws UsageError where they
/// are fewer than two, are not of one machine, or hold no measured and simulated times.
LearnedFile learn_from(const std::vector<std::string>& archives, PluginHost& host);

}  // namespace consist::launch
