// The start of a run: a device is opened, ranks connect, and named programs are prepared on one arena of states. Runs that train,
// evaluate, generate or measure steps open one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/export.h"
#include "core/connect/communicators.h"
#include "core/job/job.h"
#include "core/plan/machine_choice.h"
#include "core/plan/plan.h"
#include "core/record/start_times.h"
#include "core/state/training_state.h"

namespace consist {

/// Used on one thread. The job and the plugin host of the plan must outlive it.
class CONSIST_API Session {
 public:
  /// Collective over the job: opens the device, agrees on the options that it leaves open, on the machine and on the transports,
  /// and plans for them. `times`, which may be null, outlives this and learns when each part of the start has finished. Throws as
  /// open_device(), agree_on_machine(), agree_on_transports() and Plan::for_target().
  Session(const Plan& plan, JoinedJob& job, StartTimes* times = nullptr);
  /// For a plan whose target has a device that is open already; `make` gives its transports.
  Session(Plan plan, JoinedJob& job, TransportMaker make);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Collective over the job, to be called once, with programs that plan() has compiled: the ranks compare their programs and
  /// connect; the programs are prepared. Throws TooLarge where they do not fit the memory, and as agree_on_programs(),
  /// Communicators, TrainingState and check_host_memory().
  void prepare(NamedPrograms programs);
  /// Runs programs of the same names from now on that `plan` has compiled, which is plan() with another room.
  void replace(Plan plan, NamedPrograms programs, bool timed);

  /// The plan as the job has settled it: for the device, with the options that were chosen and notes about them.
  const Plan& plan() const noexcept { return plan_; }
  const MachineChoice& machine() const noexcept { return machine_; }
  /// Notes about options that the device has settled; they are among those of plan(), too.
  const std::vector<std::string>& device_notes() const noexcept { return device_notes_; }
  Device& device() const noexcept { return *plan_.target().device; }
  std::int64_t memory_limit() const;  ///< bytes of device memory that this rank may take
  /// Once prepare() has been called; its memory is not allocated by that.
  TrainingState& state() noexcept { return *state_; }
  const Communicators& communicators() const noexcept { return *communicators_; }

 private:
  struct Opened {
    Plan plan;
    MachineChoice machine;
    std::vector<std::string> device_notes;
  };
  static Opened open(const Plan& plan, Job& job, StartTimes* times);
  Session(Opened opened, JoinedJob& job, TransportMaker make, StartTimes* times);
  void finished(const char* part);

  JoinedJob& job_;
  StartTimes* times_;
  Plan plan_;
  MachineChoice machine_;
  std::vector<std::string> device_notes_;
  TransportMaker make_transport_;
  std::optional<Communicators> communicators_;
  std::unique_ptr<TrainingState> state_;
};

}  // namespace consist
