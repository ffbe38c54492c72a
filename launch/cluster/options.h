// Options of commands that run on a cluster.
#pragma once

#include "launch/cli/command.h"

namespace consist::launch {

inline constexpr RunOption on_option =
    valued("on", OptionKind::choice, "here", "WHERE", "here, or a cluster (docs/clusters.md)", "here|slurm|ssh|kubernetes|mpi");
inline constexpr RunOption cluster_option = valued("cluster", OptionKind::text, "", "FILE", "the cluster's; else cluster.toml");
inline constexpr RunOption dry_run_option = a_switch("dry-run", "with --on: print the jobs");

}  // namespace consist::launch
