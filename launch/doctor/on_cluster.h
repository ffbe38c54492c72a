// The examination of a cluster's hosts, as a job whose ranks are `consist examine`.
#pragma once

#include <string>
#include <vector>

#include "core/plugin/host.h"
#include "launch/cluster/cluster.h"
#include "launch/doctor/examination.h"

namespace consist::doctor {

/// The job as --dry-run prints it.
std::string dry_run_text(const launch::Cluster& cluster, const std::vector<std::string>& words, int ranks, PluginHost& host);

/// Runs the job and follows it to its end; hosts have the names that the cluster's file gives them. Throws SystemError where it
/// ends before its hosts were looked at, and as ClusterJobs::submit().
Examination examine_on(const launch::Cluster& cluster, const std::vector<std::string>& words, int ranks, PluginHost& host);

}  // namespace consist::doctor
