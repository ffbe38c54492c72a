// consist train --on slurm: one run as a job, followed to its end.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "launch/cli/run_options.h"
#include "launch/cluster/cluster_file.h"

namespace consist::launch {

/// Submits the run that the command line states, shows what becomes of the job and what its rank 0 says, and returns the run's
/// exit status. A signal asks the ranks for an orderly end, a second one ends the job. With --dry-run it prints the job instead.
/// Throws UsageError for a configuration that no cluster could run, a bad cluster file, and a job that Slurm refuses.
int train_on_cluster(const ParsedRun& parsed, RunConfig config, PluginHost& host);

}  // namespace consist::launch
