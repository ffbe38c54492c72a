#include "launch/cluster/train_on_cluster.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <thread>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/archive/archive.h"
#include "core/plan/plan.h"
#include "core/record/progress_line.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/json_output.h"
#include "launch/cluster/cluster.h"
#include "launch/import/hub_download.h"
#include "launch/start/noted_signals.h"

namespace consist::launch {
namespace {

/// Lines of the job for this terminal: its output to standard output, the rest to standard error.
class Screen {
 public:
  explicit Screen(bool json) : json_(json), columns_(terminal_columns()) {}
  ~Screen() { close_line(); }

  void output(const std::string& line) {
    if (json_) return print_json(line + "\n");
    close_line();
    std::printf("%s\n", printable(line).c_str());
    std::fflush(stdout);
  }
  /// A line of the progress takes the place of the last one on a terminal.
  void errors(const std::string& line) {
    const std::string text = printable(line);
    if (columns_ > 0 && text.starts_with("step ")) {
      std::fprintf(stderr, "\r\033[K%s", fit_line(text, columns_).c_str());
      open_ = true;
      return;
    }
    close_line();
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  void say(const std::string& text) { errors("consist: " + text); }

 private:
  void close_line() {
    if (std::exchange(open_, false)) std::fputs("\n", stderr);
  }

  const bool json_;
  const int columns_;
  bool open_ = false;
};

/// Follows the jobs until the last has ended; signals are passed on.
void follow(ClusterJobs& jobs, Screen& screen) {
  const NotedSignals& signals = note_signals();
  for (int wishes = 0; jobs.look(); std::this_thread::sleep_for(pause_between_looks)) {
    if (signals.wishes == wishes) continue;
    screen.say(signal_text(signals.number) +
               (wishes == 0 ? ": asking the job for its end; a second signal cancels it" : ": cancelling the job"));
    ++wishes;
    jobs.stop();
  }
}

/// The archive's place is checked before anything is submitted, the configuration as far as it does not depend on the nodes.
void check_run(const RunConfig& config, PluginHost& host) {
  if (!config.archive.empty()) check_archive_path(config.archive, config.overwrite || config.resume);
  plan_training(config, host);
}

}  // namespace

JobEnd follow_to_its_end(const Cluster& cluster, const TrainJob& job, bool json, const JobListener& also) {
  Screen screen(json);
  std::string name;
  const std::unique_ptr<ClusterJobs> jobs = cluster.jobs();
  JobEnd how;
  try {
    name = jobs->submit(job, {.output = [&](const std::string& line) { also.output ? also.output(line) : screen.output(line); },
                              .errors =
                                  [&](const std::string& line) {
                                    screen.errors(line);
                                    if (also.errors) also.errors(line);
                                  },
                              .state = [&](const std::string& text) { screen.say("job " + name + " " + text); },
                              .ended = [&](const JobEnd& end) { how = end; }});
  } catch (const Error&) {
    cluster.discard(job);
    throw;
  }
  screen.say("job " + name + ", " + std::to_string(job.ranks) + " ranks; its files are in " + job.folder);
  follow(*jobs, screen);
  if (const std::string archive = cluster.fetch(job); !archive.empty())
    screen.say("the archive of job " + name + " is " + archive);
  if (!how.reason.empty()) screen.say(how.reason);
  return how;
}

int train_on_cluster(const ParsedRun& parsed, RunConfig config, PluginHost& host, const std::vector<std::string>& restarts) {
  const std::unique_ptr<Cluster> cluster = make_cluster(parsed);
  if (!parsed.has("ranks")) config.ranks = cluster->settings().ranks();
  check_run(config, host);
  TrainRequest request{"train", config, plugin_paths(parsed), restarts};
  request.restarts = !restarts.empty();
  if (parsed.flag("json")) request.words.emplace_back("--json");
  if (parsed.flag("dry-run")) {
    std::fputs(cluster->dry_run_text(plan_train_job(*cluster, request, host)).c_str(), stdout);
    return 0;
  }
  bring_hub_model(config.model, !config.from_scratch);  // nodes may not reach it
  return follow_to_its_end(*cluster, make_train_job(*cluster, request, host), parsed.flag("json")).status;
}

}  // namespace consist::launch
