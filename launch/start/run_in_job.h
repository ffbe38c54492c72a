// The way from a command line to the ranks of a job: this process becomes one of them, or starts all of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/job/continuation.h"
#include "core/job/job.h"
#include "core/plan/plan.h"
#include "launch/cli/run_options.h"
#include "launch/start/restart_options.h"
#include "launch/start/stop_signals.h"

namespace consist::launch {

/// The work of a rank once it has joined; returns the exit status.
using RankBody = std::function<int(const Plan& plan, JoinedJob& job, StopSignals& signals, const Continuation& continuation)>;

/// --ranks is what this process starts, or says again how many were started: throws UsageError unless it is `size`.
void check_ranks(const ParsedRun& parsed, const RunConfig& config, int size);

/// `consist COMMAND ARGUMENTS`, whose configuration is `config`: starts itself once per rank where it is to be several, or one
/// that is replaced when it fails (--max-restarts), else joins the job that the environment describes and calls `body`. Plugins'
/// warnings are said. Returns the exit status; errors that another rank of the host reports are not thrown a second time.
int run_in_job(const char* command, const std::vector<std::string>& arguments, const ParsedRun& parsed, RunConfig config,
               PluginHost& host, const RankBody& body, const RestartOptions& restarts = {});

}  // namespace consist::launch
