#include "launch/cluster/train_job.h"

#include <ctime>
#include <filesystem>

#include "core/job/agreed_token.h"
#include "launch/cli/run_options.h"
#include "launch/cluster/cluster.h"

namespace consist::launch {
namespace {

bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const std::filesystem::path within = path.lexically_relative(folder);
  return !within.empty() && *within.begin() != "..";
}

}  // namespace

TrainJob plan_train_job(const Cluster& cluster, const TrainRequest& request, PluginHost& host) {
  namespace fs = std::filesystem;
  const std::string& folder = cluster.settings().folder;
  TrainJob job;
  job.name = cluster.next_name(request.kind, request.ahead);
  job.folder = folder + "/" + job.name;
  job.working_folder = fs::current_path().string();
  job.ranks = request.config.ranks;
  job.restarts = request.restarts;
  job.command = request.command;
  job.words = request.words;
  RunConfig config = request.config;
  if (!config.archive.empty()) {
    const fs::path wanted = fs::absolute(config.archive).lexically_normal();
    const bool is_shared = cluster.shares_folder() && lies_in(wanted, folder);
    job.archive = is_shared ? wanted.string() : job.folder + "/" + job_files::archive;
    job.archive_here = is_shared ? "" : wanted.string();
    job.goes_on = config.resume && !is_shared;
    config.archive = job.archive;
  }
  job.config = to_toml(config, host, request.plugins);
  job.script = cluster.script(job);
  return job;
}

std::string dated_name(const std::string& kind) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return kind + "-" + text + "-" + new_token().substr(0, 6);
}

TrainJob make_train_job(const Cluster& cluster, const TrainRequest& request, PluginHost& host) {
  for (;;) {
    TrainJob job = plan_train_job(cluster, request, host);
    if (cluster.prepare(job)) return job;
  }
}

}  // namespace consist::launch
