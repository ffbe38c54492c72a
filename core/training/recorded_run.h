// The run of one rank, from its configuration to its results, in order.
#pragma once

#include <atomic>
#include <optional>

#include "core/job/job.h"
#include "core/plan/plan.h"
#include "core/record/observers.h"
#include "core/record/recorder.h"
#include "core/training/run.h"
#include "core/training/samples.h"
#include "core/training/stop_request.h"
#include "core/training/trainer.h"

namespace consist {

/// The arguments of run_training(), which outlive the run.
struct RunContext {
  const Plan& plan;
  JoinedJob& job;
  StopRequest& stop;
  const RunHooks& hooks;
  const SampleRequest* samples = nullptr;
};

/// Agrees with the other ranks, opens the device, connects, fills the states, trains and records. `recorder` is made once nothing
/// but training itself can fail, and `open_recorder` then points at it: a run that is refused leaves no archive, and an older one
/// as it was. Throws as run_training().
TrainerResult run_recorded(const RunContext& context, std::optional<Recorder>& recorder, std::atomic<Recorder*>& open_recorder,
                           Observers& observers);

}  // namespace consist
