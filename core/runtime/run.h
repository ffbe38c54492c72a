// One training run on one rank, from the configuration to the results.
#pragma once

#include "core/config/run_config.h"
#include "core/job/job.h"
#include "core/plugin/host.h"
#include "core/runtime/parts.h"
#include "core/runtime/stop_request.h"
#include "core/runtime/trainer.h"

namespace consist {

/// Runs what `config` says as rank job.rank() of job.size() (which must equal config.ranks), with the parts that
/// check_configuration() has made of it. Progress goes to the terminal on rank 0. `stop` is requested by the signal handlers:
/// from its begin_training() on, all ranks then end after the same step, with a checkpoint if one is asked for. Throws
/// consist::Error; the archive and checkpoints are left readable in any case.
CONSIST_API TrainerResult run_training(const RunConfig& config, Parts parts, PluginHost& host, JoinedJob& job, StopRequest& stop);

}  // namespace consist
