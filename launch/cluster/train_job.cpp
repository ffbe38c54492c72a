#include "launch/cluster/train_job.h"

#include <algorithm>
#include <filesystem>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/number.h"
#include "core/base/write_text.h"
#include "core/job/agreed_token.h"
#include "launch/cli/run_options.h"

namespace consist::launch {
namespace {

namespace fs = std::filesystem;

/// The number of the next job of that kind: one more than the largest that has a folder.
int next_number(const std::string& folder, const std::string& kind) {
  int largest = 0;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return 1;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string(), front = kind + "-";
    if (int number = 0; name.starts_with(front) && parse_number(std::string_view(name).substr(front.size()), number))
      largest = std::max(largest, number);
  }
  if (error) throw SystemError("cannot read the folder " + folder + ": " + error.message());
  return largest + 1;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path within = path.lexically_relative(folder);
  return !within.empty() && *within.begin() != "..";
}

void copy_whole(const std::string& from, const std::string& to) {
  AtomicFile file(to);
  std::error_code error;
  fs::copy_file(from, file.partial_path(), fs::copy_options::overwrite_existing, error);
  if (error) throw SystemError("cannot copy " + from + " to " + to + ": " + error.message());
  file.commit();
}

/// Makes the job's folder and its files; false if another command has just taken the folder's name.
bool write_train_job(const SlurmSettings& settings, const TrainJob& job) {
  std::error_code error;
  fs::create_directories(settings.folder, error);
  if (error) throw SystemError("cannot make the folder " + settings.folder + " (" + settings.file + "): " + error.message());
  if (!fs::create_directory(job.batch.folder, error)) {
    if (!error) return false;
    throw SystemError("cannot make the folder " + job.batch.folder + ": " + error.message());
  }
  try {
    write_secret(job.batch.folder + "/" + job_files::token, new_token());
    write_text(job.batch.folder + "/" + job_files::config, job.config);
    write_text(job.batch.folder + "/" + job_files::script, job.script);
    if (job.goes_on && fs::exists(job.archive_here)) copy_whole(job.archive_here, job.archive);
  } catch (...) {
    remove_train_job(job);
    throw;
  }
  return true;
}

}  // namespace

TrainJob plan_train_job(const SlurmSettings& settings, const TrainRequest& request, PluginHost& host) {
  const std::string name = request.kind + "-" + std::to_string(next_number(settings.folder, request.kind) + request.ahead);
  TrainJob job;
  job.batch = {.name = "consist-" + name,
               .folder = settings.folder + "/" + name,
               .working_folder = fs::current_path().string(),
               .ranks = request.config.ranks,
               .words = {"train", "--config", settings.folder + "/" + name + "/" + job_files::config}};
  job.batch.words.insert(job.batch.words.end(), request.words.begin(), request.words.end());
  RunConfig config = request.config;
  if (!config.archive.empty()) {
    const fs::path wanted = fs::absolute(config.archive).lexically_normal();
    const bool is_shared = lies_in(wanted, settings.folder);
    job.archive = is_shared ? wanted.string() : job.batch.folder + "/" + job_files::archive;
    job.archive_here = is_shared ? "" : wanted.string();
    job.goes_on = config.resume && !is_shared;
    config.archive = job.archive;
  }
  job.config = to_toml(config, host, request.plugins);
  job.script = batch_script(settings, job.batch);
  return job;
}

TrainJob make_train_job(const SlurmSettings& settings, const TrainRequest& request, PluginHost& host) {
  for (;;) {
    TrainJob job = plan_train_job(settings, request, host);
    if (write_train_job(settings, job)) return job;
  }
}

void remove_train_job(const TrainJob& job) noexcept {
  std::error_code ignored;
  fs::remove_all(job.batch.folder, ignored);
}

std::string bring_archive(const TrainJob& job) {
  std::error_code ignored;
  if (job.archive.empty() || !fs::exists(job.archive, ignored)) return "";
  if (job.archive_here.empty()) return job.archive;
  copy_whole(job.archive, job.archive_here);
  return job.archive_here;
}

std::string dry_run_text(const TrainJob& job) {
  return "# " + job.batch.folder + "/" + job_files::script + "\n" + job.script + "\n# " + job.batch.folder + "/" +
         job_files::config + "\n" + job.config;
}

}  // namespace consist::launch
