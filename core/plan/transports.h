// --transport of a plan: the names of plugins for each mesh axis, and what `auto` comes to. train, predict, advise, tune,
// compare, explain, calibrate and bench resolve it here.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/export.h"
#include "consist/job.h"
#include "consist/mesh.h"
#include "consist/program.h"
#include "core/compile/layout.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist {

/// The transports that `auto` stands for, by the preferences that the transports state (Transport::preference).
struct AutomaticTransports {
  /// Plugin names for groups within a node ([0]) and on several nodes ([1]); empty: there is none that connects such groups.
  std::array<std::string, 2> names;
  /// Why not a transport that is preferred to it: "not efa: ..."; empty: there is none.
  std::array<std::string, 2> reasons;
  /// True if other transports could have been chosen: a run on another machine may come to another choice.
  std::array<bool, 2> is_open = {false, false};
  /// The transport for all groups of a plan with both kinds; empty: each kind has its own. One that is preferred for both is
  /// taken for all groups or for none, since it carries traffic within nodes by itself.
  std::string of_both;
};

/// For a machine that need not be present: transports are there whose links its file knows. Throws as PluginHost::make for a
/// plugin that has options; one without, that cannot be made, is left out with a warning.
CONSIST_API AutomaticTransports automatic_transports(const RunConfig& config, PluginHost& host, const Machine& machine);

/// Collective over the job: the choice of rank 0 for its device, whose kind this is. Transports are there that can serve it
/// (Transport::unavailable). Throws as the other one on rank 0, and as Job::broadcast.
CONSIST_API AutomaticTransports agree_on_transports(Job& job, const RunConfig& config, PluginHost& host,
                                                    const std::string& device_kind);

/// By axis of a layout's mesh.
struct PlannedTransports {
  std::vector<std::string> asked;  ///< by --transport: a name, or automatic_transport
  std::vector<AxisTransports> by_axis;
  /// By name, why it cannot connect groups within a node ([0]) and on several ([1]); empty: it can.
  std::map<std::string, std::array<std::string, 2>> refusals;
  AutomaticTransports automatic;  ///< what it was for; names are empty where nothing asked for it
};

/// A name stands for all groups of its axis; but one that connects hosts alone leaves groups within a node to what `automatic`
/// has there: `efa` is EFA across nodes and NVLink within. `automatic`: already known; empty: by the machine's file.
/// `device_kind`: of the device. Throws UsageError for strategies and axes that the layout does not have.
PlannedTransports plan_transports(const RunConfig& config, const Layout& layout, const Machine& machine, PluginHost& host,
                                  const std::string& device_kind, const std::optional<AutomaticTransports>& automatic);

/// Throws UsageError for sets of axes over which the program has collectives, and for axes in none of them, which a run connects,
/// too: where their axes have different transports, where theirs cannot connect their groups, and where a named one connects
/// none.
CONSIST_API void check_transports(const Program& program, const Layout& layout, const PlannedTransports& transports);

/// The names by axis as --transport takes them, "nvlink+data.0=efa": on that machine it comes to the same. `mesh`: of the plan's
/// layout.
CONSIST_API std::string option_text(const PlannedTransports& transports, const CostModel& costs, const Mesh& mesh);

}  // namespace consist
