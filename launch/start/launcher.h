// Runs a job of several ranks on this machine.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launch/start/node_group.h"

namespace consist::launch {

struct LaunchOptions {
  bool all_output = false;  ///< pass on what ranks above 0 write to their standard output, too
  /// Time in which the ranks may end by themselves before they are terminated: after one of them has failed, which the others
  /// know at once, and after a signal, when they may have to finish a step and save their work.
  std::chrono::milliseconds grace_after_failure{8'000};
  std::chrono::milliseconds grace_after_signal{60'000};
  /// Failures after which all ranks are replaced by new processes, which go on where the run's state was kept last. A failure
  /// that would repeat is not followed by a restart (RestartPolicy).
  int max_restarts = 0;
  NodeOptions nodes = {};  ///< several: the ranks here are some of those of a job over these machines
  bool snapshots = true;   ///< with `max_restarts`: ranks may keep snapshots in a folder in memory (SnapshotFolder)
};

/// Starts this executable `ranks` times with `arguments` ({"train", "--model", ...}) in the environment of torchrun, with a fresh
/// token and a port that rank 0 inherits already open, and waits for all of them. Rank 0's output passes straight through; of the
/// others, the standard error, with "[rank k] " before every line. SIGINT, SIGTERM and, unless it is ignored, SIGHUP are passed
/// on; repeated (later than half a second) or after the grace period they become SIGTERM, then SIGKILL. When a rank fails before
/// all have joined the job, which no rank could notice, it is named and the others are ended at once. Output without a reader
/// is dropped. If this process dies, the system kills the ranks. With `max_restarts` the ranks that are left after a failure get
/// two seconds, not the grace period, and each set of new ranks has a token, a port and a generation of its own. Returns 0 if all
/// ranks did, otherwise the status of the one that failed first by itself (128 + n for signal n). Call it from the main thread of
/// a process that has no others. With several `nodes` the launchers of all machines agree on each generation. One that is lost
/// takes its ranks with it; the others then wait for another in its place, as a restart. Throws UsageError for a number of ranks
/// below 1, SystemError when the ranks cannot be started or launchers do not come.
int launch_local(int ranks, const std::vector<std::string>& arguments, const LaunchOptions& options = {});

}  // namespace consist::launch
