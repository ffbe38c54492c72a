// Runners of the rows of a comparison: one after the other in processes here, or as jobs of a cluster.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "launch/cluster/cluster.h"
#include "launch/compare/outcome.h"

namespace consist::launch {

/// One run of a row.
struct RowRun {
  std::size_t row = 0;
  int repeat = 1;
  std::string label;    ///< for messages
  RunConfig config;     ///< without its archive; its notes are for the log
  std::string archive;  ///< within the comparison's folder
  std::string base;     ///< of the names of its files there: BASE.toml, BASE.log
  bool overwrite = false;
};

class RowRunner {
 public:
  using Next = std::function<std::optional<RowRun>()>;
  using Ended = std::function<void(const RowRun& run, RunOutcome outcome)>;

  RowRunner() = default;
  RowRunner(const RowRunner&) = delete;
  RowRunner& operator=(const RowRunner&) = delete;
  virtual ~RowRunner() = default;

  /// Runs what `next` gives until it gives nothing, and tells `ended` of each; returns when all have ended. `next` gives nothing
  /// more once a signal was noted, which ends the runs that go on. Throws SystemError where nothing can be started, and
  /// UsageError where a cluster takes no job of these.
  virtual void run(const Next& next, const Ended& ended) = 0;
};

/// `plugins` are the paths of --plugin.
std::unique_ptr<RowRunner> make_local_runner(PluginHost& host, std::vector<std::string> plugins);
/// `kind` of the command that makes the jobs: "compare", which names them.
std::unique_ptr<RowRunner> make_cluster_runner(const std::string& kind, std::shared_ptr<const Cluster> cluster, PluginHost& host,
                                               std::vector<std::string> plugins);

}  // namespace consist::launch
