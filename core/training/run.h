// One training run on one rank, from the configuration to the results.
#pragma once

#include "core/job/job.h"
#include "core/plan/plan.h"
#include "core/training/adviser.h"
#include "core/training/samples.h"
#include "core/training/stop_request.h"
#include "core/training/trainer.h"

namespace consist {

/// Runs the plan as rank job.rank() of job.size() (which must equal config().ranks); its target becomes the device and the
/// machine that the job agrees on. Progress goes to the terminal on rank 0. `stop` is requested by the signal handlers: from its
/// begin_training() on, all ranks then end after the same step, with a checkpoint if one is asked for. `adviser` (null: none) is
/// asked for notes before the first step, and if the plan does not fit. Throws consist::Error; the archive and checkpoints are
/// left readable in any case.
/// `samples` (null: none) is text to write between steps, which changes nothing of what is trained.
CONSIST_API TrainerResult run_training(Plan plan, JoinedJob& job, StopRequest& stop, Adviser* adviser = nullptr,
                                       const SampleRequest* samples = nullptr);

}  // namespace consist
