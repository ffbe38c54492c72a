// All that is read of a machine once, for the checks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "consist/rdma.h"
#include "core/job/job.h"
#include "launch/doctor/cgroups.h"
#include "launch/doctor/check.h"
#include "launch/doctor/gpus.h"
#include "launch/doctor/machine.h"

namespace consist::doctor {

struct Facts {
  Machine machine;
  std::string archive_folder = ".";  ///< where archives will lie
  Gpus gpus;
  std::vector<RdmaDevice> rdma;
  GroupLimits group;
  std::vector<PluginState> plugins;
  std::string plugin_problem;  ///< why the plugins could not be listed; empty if they were
  JobAddress job;              ///< of one rank alone where `job_problem` says something
  std::string job_problem;
  bool has_joined = false;  ///< this process is a rank of that job already

  /// Null if this build has no such plugin.
  const PluginState* plugin(std::string_view kind, std::string_view name) const;
  /// Ranks that this machine is likely to have: those of its job, else one for each GPU.
  int ranks_here() const;
  bool has_rdma() const { return !rdma.empty(); }
  bool has_efa() const;
};

/// True if the plugin was not waited for any longer: nothing is known of it.
bool was_too_slow(const PluginState& plugin);

/// The finding of a check of GPUs where there are none, or none that nvidia-smi lists.
std::optional<Finding> without_listed_gpus(const Facts& facts);

Facts read_facts(Machine machine, std::string archive_folder);

}  // namespace consist::doctor
