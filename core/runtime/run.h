// One training run on one rank, from the configuration to the results.
#pragma once

#include <atomic>
#include <functional>

#include "core/config/run_config.h"
#include "core/job/job.h"
#include "core/plugin/host.h"
#include "core/runtime/trainer.h"

namespace consist {

/// Runs what `config` says as rank job.rank() of job.size() (which must equal config.ranks). Progress goes to the terminal on
/// rank 0. `stop` is set by the signal handlers. Throws consist::Error; the archive and checkpoints are left readable in any
/// case.
CONSIST_API TrainerResult run_training(const RunConfig& config, PluginHost& host, JoinedJob& job, const std::atomic<bool>& stop);

}  // namespace consist
