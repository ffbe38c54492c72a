// The processes of a comparison: one run after the other, and what became of each.
#pragma once

#include <string>
#include <vector>

#include "core/plugin/host.h"
#include "launch/compare/outcome.h"

namespace consist::launch {

/// Runs `consist train --config CONFIG --archive ARCHIVE`, with --overwrite where that is asked for or the archive is there, and
/// writes `notes`, what the configuration's makers had to say, and all that it says to `log`. A noted signal (noted_signals()) is
/// passed on to it, which makes the outcome "interrupted" unless it finished nevertheless. The reason of one that was refused or
/// failed is its error message with all its lines. THROWS SystemError where no process can be started.
RunOutcome run_in_process(const std::string& config, const std::vector<std::string>& notes, const std::string& archive,
                          const std::string& log, bool overwrite = false);

/// The outcome of a run with that exit status; `reason` is its error message. A noted signal makes it "interrupted" unless it
/// finished nevertheless.
RunOutcome outcome_of(int status, const std::string& reason, const std::string& archive, const std::string& log);

/// Collects the error message from a run's output.
class Reason {
 public:
  void add(const std::string& line);
  /// The first message, with the lines that belong to it; otherwise how the process ended, and the last line that it wrote.
  std::string text(int exit_status) const;

 private:
  std::string message_, last_;
  bool open_ = false;
};

/// True if `archive` holds a finished run of exactly this configuration, in whichever way values of plugins' options are written.
bool is_done(const std::string& archive, const std::string& config_json, PluginHost& host);

/// Describes the run in the archive at `path` that running this configuration would replace: "a finished run with steps 40, here
/// 6". Empty if it holds a run of this configuration, or no run that could be read.
std::string other_run(const std::string& path, const std::string& config_json, PluginHost& host);

}  // namespace consist::launch
