// The plan of a run: parts, mesh, programs of the ranks, their memory and the time of a step, made from a configuration. train,
// explain and compare begin with it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/device.h"
#include "core/config/run_config.h"
#include "core/cost/simulator.h"
#include "core/lower/prepared_program.h"
#include "core/lower/program_summary.h"
#include "core/plan/parts.h"
#include "core/plan/transports.h"
#include "core/plugin/host.h"

namespace consist {

/// The device and machine that a run is planned for.
struct Target {
  std::shared_ptr<Device> device;          ///< open; null: no device is asked, and the scratch of kernels is estimated
  std::shared_ptr<const Machine> machine;  ///< null: that of RunConfig::machine, else reference_machine()
  bool verify_each_pass = true;            ///< as CompileRequest's
  /// The choice for `--transport auto` that rank 0 made in a run; empty: the choice follows the machine's file.
  std::optional<AutomaticTransports> automatic = {};
};

/// The step of a rank, its memory planned. It stands for all ranks that differ from it along other axes than that of stages.
struct PlannedRank {
  int rank = 0;
  std::unique_ptr<PreparedProgram> step;
  ProgramSummary summary;
};

/// The first stage of a plan: the parts that a configuration names, which need not go together. A comparison tells one that names
/// parts that do not exist from one whose parts do not go together.
struct SelectedParts {
  RunConfig config;
  Parts parts;
};
/// Makes the parts but device and dataset. Throws as make_parts().
CONSIST_API SelectedParts select_parts(RunConfig config, PluginHost& host);

/// Choices that a job makes for a run that is planned already. No program depends on it.
struct JobChoices {
  std::optional<std::int64_t> steps = std::nullopt;  ///< RunConfig::steps, where --epochs says how many
  /// RunConfig::chosen_options.
  std::optional<std::map<std::string, std::map<std::string, std::string>>> options = std::nullopt;
  std::optional<std::string> transport = std::nullopt;  ///< RunConfig::chosen_transport
  std::vector<std::string> notes = {};                  ///< behind those of RunConfig::notes
};

/// A value: nothing changes a plan, and what differs is another plan, made of this one. The plugin host must outlive it. Programs
/// may be compiled on several threads at once unless the target has a device.
class CONSIST_API Plan {
 public:
  /// The second stage: lays the ranks out in a mesh and settles the batch; notes strategies whose options have no effect. Throws
  /// UsageError where sizes, ranks and transports do not go together, and for a --machine that is not known.
  Plan(SelectedParts selected, PluginHost& host, Target target = {});

  PluginHost& host() const noexcept { return *host_; }
  const RunConfig& config() const noexcept { return config_; }
  const Parts& parts() const noexcept { return parts_; }
  const Layout& layout() const noexcept { return layout_; }
  const Target& target() const noexcept { return target_; }  ///< its machine is not null
  const PlannedTransports& transports() const noexcept { return transports_; }
  /// --expert-load; null: routers choose as they will. A plan without a device is rated by it.
  const ExpertLoad* experts() const noexcept { return parts_.experts.get(); }
  double room() const noexcept { return room_; }  ///< CompileRequest::room

  /// The same run for another device or machine. Throws UsageError for a --transport that does not go together with them.
  Plan for_target(Target target) const;
  /// The same run with that CompileRequest::room.
  Plan with_room(double room) const;
  /// A run whose steps have so many micro-batches, for estimates of longer steps. The batch of all ranks stays as it is stated.
  Plan with_micro_batches(int accumulation) const;
  /// The same run with what its job has settled.
  Plan with_choices(JobChoices choices) const;

  /// Compiled for the target. Throw what compile_step() throws.
  Program step(int rank, PassObserver* observer = nullptr) const;  ///< the observer is told of each pass
  std::optional<Program> evaluation(int rank) const;               ///< none without --evaluate-every
  /// compile_stretch() of one sequence per rank, with room for `longest` tokens.
  Program stretch(std::int64_t longest, std::int64_t tokens, bool logits, int rank) const;

  /// Compiles each rank that differs from `rank` along the axis of stages, itself among them, in the axis's order; plans their
  /// memory. On as many threads, at most; with a device on one. Without `summarized` PlannedRank::summary is empty, for searches,
  /// which need the times and the memory alone. Throws as step() and PreparedProgram.
  std::vector<PlannedRank> ranks(int rank = 0, int threads = 1, bool summarized = true) const;

 private:
  void set_target(Target target);
  void check_expert_load() const;

  PluginHost* host_;
  RunConfig config_;
  Parts parts_;
  Layout layout_;
  Target target_;
  PlannedTransports transports_;
  double room_ = 1;
};

/// Throws UsageError for a run that cannot have its --expert-load, which predictions can.
CONSIST_API void check_forced_routes(const RunConfig& config);

/// Both stages: how a process plans its run, once.
CONSIST_API Plan plan_run(RunConfig config, PluginHost& host, Target target = {});
/// The same of a run that is to be made, which check_forced_routes() must pass.
CONSIST_API Plan plan_training(RunConfig config, PluginHost& host);

/// The programs of planned ranks, for simulate().
CONSIST_API std::vector<const Program*> programs_of(std::span<const PlannedRank> ranks);
/// A step of them, by the durations that `durations_of` gives for each program.
CONSIST_API Simulation simulate(std::span<const PlannedRank> ranks,
                                Durations (*durations_of)(const Program&) = estimated_durations);

}  // namespace consist
