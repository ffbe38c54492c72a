// One training run on one rank, from the configuration to the results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/observer.h"
#include "core/job/continuation.h"
#include "core/job/job.h"
#include "core/plan/plan.h"
#include "core/training/samples.h"
#include "core/training/stop_request.h"
#include "core/training/trainer.h"

namespace consist {

/// Bytes of device memory of the rank that needs the most.
struct RunMemory {
  std::int64_t capacity = 0;  ///< that a rank's plan may take
  std::int64_t planned = 0;   ///< that this run's plan takes, workspaces of kernels included
};

/// Functions that a command adds to a run, called on the run's thread. The plan's target is the run's device and machine. Empty:
/// nothing.
struct RunHooks {
  /// Returns text to append to the message of a plan that does not fit the memory. Called on every rank that is refused.
  std::function<std::string(const Plan& plan, const RunMemory& memory)> refused = {};
  /// Returns notes for people, which the archive keeps as advice. Called on rank 0 alone before the first step, for which the
  /// other ranks wait. `compile_seconds`: what compiling the steps of all stages takes, one after the other.
  std::function<std::vector<std::string>(const Plan& plan, const RunMemory& memory, double compile_seconds)> before_training = {};
  /// The launcher that replaces ranks, if there is one.
  Continuation continuation = {};
  /// Told on rank 0 what the observers of --observe are told. Null: nobody.
  std::shared_ptr<Observer> observer = nullptr;
};

/// Runs the plan as rank job.rank() of job.size() (which must equal config().ranks), on the device and the machine that the job
/// agrees on. Of other ranks than 0 the configuration names no archive. Progress goes to the terminal on rank 0. `stop` is
/// requested by the signal handlers: from its begin_training() on, all ranks then end after the same step, with a checkpoint if
/// one is asked for. Throws consist::Error; the archive and checkpoints are left readable in any case.
/// `samples` (null: none) is text to write between steps, which changes nothing of what is trained.
CONSIST_API TrainerResult run_training(const Plan& plan, JoinedJob& job, StopRequest& stop, const RunHooks& hooks = {},
                                       const SampleRequest* samples = nullptr);

}  // namespace consist
