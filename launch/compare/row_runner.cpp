#include "launch/compare/row_runner.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/base/write_text.h"
#include "launch/cli/exit_status.h"
#include "launch/cli/run_options.h"
#include "launch/cluster/jobs.h"
#include "launch/cluster/train_job.h"
#include "launch/compare/runs.h"
#include "launch/start/noted_signals.h"

namespace consist::launch {
namespace {

class LocalRunner final : public RowRunner {
 public:
  LocalRunner(PluginHost& host, std::vector<std::string> plugins) : host_(host), plugins_(std::move(plugins)) {}

  void run(const Next& next, const Ended& ended) override {
    while (const std::optional<RowRun> row = next()) {
      const std::string file = row->base + ".toml";
      write_text(file, to_toml(row->config, host_, plugins_));
      ended(*row, run_in_process(file, row->config.notes, row->archive, row->base + ".log", row->overwrite));
    }
  }

 private:
  PluginHost& host_;
  const std::vector<std::string> plugins_;
};

/// A row as a job: its log and its error message grow while it runs.
struct RowJob {
  RowRun run;
  TrainJob job;
  std::string number;
  std::ofstream log;
  Reason reason;

  void take(const std::string& said) {
    const std::string line = printable(said);
    log << line << std::endl;
    reason.add(line);
  }
};

class ClusterRunner final : public RowRunner {
 public:
  ClusterRunner(std::string kind, std::shared_ptr<const Cluster> cluster, PluginHost& host, std::vector<std::string> plugins)
      : kind_(std::move(kind)), cluster_(std::move(cluster)), host_(host), plugins_(std::move(plugins)) {}

  void run(const Next& next, const Ended& ended) override {
    const std::unique_ptr<ClusterJobs> jobs = cluster_->jobs();
    try {
      follow(*jobs, next, ended);
    } catch (...) {
      jobs->stop();
      throw;
    }
  }

 private:
  void follow(ClusterJobs& jobs, const Next& next, const Ended& ended) {
    const NotedSignals& signals = noted_signals();
    const int most = cluster_->settings().max_jobs;
    int wishes = 0;
    for (bool more = true;;) {
      while (more && (most == 0 || jobs.open() < static_cast<std::size_t>(most))) {
        std::optional<RowRun> row = next();
        more = row.has_value();
        if (more) submit(jobs, std::move(*row), ended);
      }
      if (!jobs.look() && !more) return;
      if (signals.wishes > wishes) {
        ++wishes;
        jobs.stop();
      }
      std::this_thread::sleep_for(pause_between_looks);
    }
  }

  void submit(ClusterJobs& jobs, RowRun run, const Ended& ended) {
    write_text(run.base + ".toml", to_toml(run.config, host_, plugins_));
    const auto row = std::make_shared<RowJob>();
    row->run = std::move(run);
    RunConfig config = row->run.config;
    config.archive = row->run.archive;
    config.overwrite = config.overwrite || row->run.overwrite || std::filesystem::exists(row->run.archive);
    try {
      row->job = make_train_job(*cluster_, {kind_, std::move(config), plugins_}, host_);
    } catch (const UsageError& error) {  // its ranks do not fill nodes
      return ended(row->run, {.status = "refused", .reason = error.what()});
    }
    row->log.open(row->run.base + ".log");
    for (const std::string& note : row->run.config.notes) row->log << printable(note) << "\n";
    const auto take = [row](const std::string& line) { row->take(line); };
    try {
      row->number = jobs.submit(row->job, {.output = take,
                                           .errors = take,
                                           .state = [row](const std::string& text) { say(*row, text); },
                                           .ended = [this, row, ended](const JobEnd& end) { finish(*row, end, ended); }});
    } catch (...) {
      cluster_->discard(row->job);
      throw;
    }
    say(*row, "in " + row->job.folder);
  }

  static void say(const RowJob& row, const std::string& text) {
    std::fprintf(stderr, "  %s: job %s %s\n", printable(row.run.label).c_str(), row.number.c_str(), printable(text).c_str());
  }

  void finish(RowJob& row, const JobEnd& end, const Ended& ended) const {
    cluster_->fetch(row.job);
    if (!end.reason.empty()) row.take(end.reason);
    const std::string reason = end.reason.empty() ? row.reason.text(end.status) : end.reason;
    ended(row.run, outcome_of(end.status, reason, row.run.archive, row.run.base + ".log"));
  }

  const std::string kind_;
  const std::shared_ptr<const Cluster> cluster_;
  PluginHost& host_;
  const std::vector<std::string> plugins_;
};

}  // namespace

std::unique_ptr<RowRunner> make_local_runner(PluginHost& host, std::vector<std::string> plugins) {
  return std::make_unique<LocalRunner>(host, std::move(plugins));
}

std::unique_ptr<RowRunner> make_cluster_runner(const std::string& kind, std::shared_ptr<const Cluster> cluster, PluginHost& host,
                                               std::vector<std::string> plugins) {
  return std::make_unique<ClusterRunner>(kind, std::move(cluster), host, std::move(plugins));
}

}  // namespace consist::launch
