// Writes a run into its archive, on rank 0.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/loss.h"
#include "core/archive/archive.h"
#include "core/archive/past.h"
#include "core/config/run_config.h"
#include "core/record/run_result.h"
#include "core/record/step_report.h"

namespace consist {

/// The columns of an archive for own metrics of a program.
std::vector<Column> columns_of(std::span<const OwnMetric> metrics);

/// True if the run goes on in the archive that is there: with --resume, or if it is the run's own, by ranks that failed (`own`).
bool archive_goes_on(const RunConfig& config, bool own);

/// Without a path in the configuration it does nothing. Thread-safe, so that a run that cannot end in order is ended by another
/// thread (LastResort).
class Recorder {
 public:
  /// Where archive_goes_on(), the run goes on in the archive after `first_step` steps: what it holds is copied into a new file,
  /// which takes its place in describe(). Throws what Archive and read_past throw.
  Recorder(const RunConfig& config, std::int64_t first_step, bool own_archive = false);
  /// Before the first step. `sensors`: what the device can read, each a column of /steps. `auxiliary_loss`: whether steps report
  /// one. `routers`: those of Program::routers, whose experts' choices steps report. `metrics`: own_metrics() that steps and
  /// evaluations report. `loss_unit`: Loss::unit().
  void describe(const std::string& environment, const std::string& topology, const std::string& program,
                std::span<const DeviceReading> sensors, bool auxiliary_loss = false, std::span<const Router> routers = {},
                std::span<const OwnMetric> metrics = {}, const std::string& loss_unit = Loss::default_unit);
  /// `sensors`: the newest readings, in the order of describe().
  void step(const StepReport& report, std::span<const DeviceReading> sensors);
  /// Before the first step is recorded: what the run's start took.
  void start(const std::string& json);
  void profile(const std::string& json);
  /// In place of what describe() said: programs were replaced by others.
  void program(const std::string& json);
  /// When the step's instructions ran, once the run is over (step_timeline.h).
  void timeline(const std::string& json);
  /// The programs of the step, once the run is over (program_texts.h).
  void programs(const std::string& json);
  /// Records the traffic between ranks, once the run is over (traffic_json).
  void traffic(const std::string& json);
  void evaluation(const EvaluationReport& report);
  void event(const std::string& kind, const std::string& text);
  void finish(const std::string& status, const std::string& reason, const RunResult* result);
  /// A failed run, unless another thread is at work in the archive and does not come to an end.
  void finish_failed(const std::string& reason);

 private:
  void take_over(std::span<const Column> columns);
  void define_experts(std::span<const Router> routers);

  std::timed_mutex mutex_;
  std::unique_ptr<Archive> archive_;
  std::string path_;                 // where the archive is to be
  std::int64_t first_step_ = 0;
  std::int64_t every_ = 1;           // so many steps have one row in /experts
  std::optional<ArchivePast> past_;  // of the archive in whose place this one goes
};

}  // namespace consist
