// The plan of a run: parts, mesh, programs of the ranks, their memory and the time of a step, each made once from a
// configuration. train, explain and compare begin with it.
#pragma once

#include <memory>
#include <optional>
#include <span>
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

/// Not thread-safe; the plugin host must outlive it. Made in two stages, since a comparison tells parts that do not exist from
/// parts that do not go together: plan_run() does both.
class CONSIST_API Plan {
 public:
  /// Makes the parts but device and dataset. Throws as make_parts().
  Plan(RunConfig config, PluginHost& host);

  /// Lays the ranks out in a mesh and settles the batch; notes strategies whose options have no effect. Throws UsageError where
  /// sizes and ranks do not go together, and for a --machine that is not known. To be called once, before what follows.
  void lay_out(Target target = {});

  PluginHost& host() noexcept { return *host_; }
  const RunConfig& config() const noexcept { return config_; }
  RunConfig& config() noexcept { return config_; }  ///< what the job settles later: chosen options, notes, where results go
  const Parts& parts() const noexcept { return parts_; }
  Parts& parts() noexcept { return parts_; }  ///< device and dataset are added
  const Layout& layout() const noexcept { return layout_; }
  const Target& target() const noexcept { return target_; }  ///< its machine is there once the plan is laid out
  /// Throws UsageError for a --transport that does not go together with the layout.
  void set_target(Target target);
  const PlannedTransports& transports() const noexcept { return transports_; }  ///< once the plan is laid out
  /// CompileRequest::room of what is compiled from now on.
  void set_room(double room) noexcept { room_ = room; }
  double room() const noexcept { return room_; }

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
  PluginHost* host_;
  RunConfig config_;
  Parts parts_;
  Layout layout_;
  Target target_;
  PlannedTransports transports_;
  double room_ = 1;
};

/// Both stages.
CONSIST_API Plan plan_run(RunConfig config, PluginHost& host, Target target = {});

/// The programs of planned ranks, for simulate().
CONSIST_API std::vector<const Program*> programs_of(std::span<const PlannedRank> ranks);
/// A step of them, by the durations that `durations_of` gives for each program.
CONSIST_API Simulation simulate(std::span<const PlannedRank> ranks,
                                Durations (*durations_of)(const Program&) = estimated_durations);

}  // namespace consist
