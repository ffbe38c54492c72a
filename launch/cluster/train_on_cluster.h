// consist train --on slurm, --on ssh: one run as a job, followed to its end.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "launch/cli/run_options.h"
#include "launch/cluster/cluster.h"
#include "launch/cluster/jobs.h"

namespace consist::launch {

/// Follows a job that was prepared to its end, and brings its archive. What rank 0 prints goes to `also.output`, or to standard
/// output where there is none; what is said on standard error goes to `also.errors`, too. Throws as ClusterJobs::submit().
JobEnd follow_to_its_end(const Cluster& cluster, const TrainJob& job, bool json, const JobListener& also = {});

/// Submits the run that the command line states, shows what becomes of the job and what its rank 0 says, and returns the run's
/// exit status. `restarts` are the options of replacing ranks, if any are to be replaced. A signal asks the ranks for an orderly
/// end, a second one ends the job. With --dry-run it prints the job instead. Throws UsageError for a configuration that no
/// cluster could run, a bad cluster file, and a job that the cluster refuses.
int train_on_cluster(const ParsedRun& parsed, RunConfig config, PluginHost& host, const std::vector<std::string>& restarts);

}  // namespace consist::launch
