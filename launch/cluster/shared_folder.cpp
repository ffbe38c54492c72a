#include "launch/cluster/shared_folder.h"

#include <algorithm>
#include <filesystem>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/number.h"
#include "core/base/write_text.h"
#include "core/job/agreed_token.h"

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

void copy_whole(const std::string& from, const std::string& to) {
  AtomicFile file(to);
  std::error_code error;
  fs::copy_file(from, file.partial_path(), fs::copy_options::overwrite_existing, error);
  if (error) throw SystemError("cannot copy " + from + " to " + to + ": " + error.message());
  file.commit();
}

}  // namespace

std::string SharedFolderCluster::next_name(const std::string& kind, int ahead) const {
  return kind + "-" + std::to_string(next_number(settings().folder, kind) + ahead);
}

std::string SharedFolderCluster::dry_run_text(const TrainJob& job) const {
  return "# " + job.folder + "/" + script_file_ + "\n" + job.script + "\n# " + job.folder + "/" + job_files::config + "\n" +
         job.config;
}

void SharedFolderCluster::write_files(const TrainJob& job) const {
  write_secret(job.folder + "/" + job_files::token, new_token());
  write_text(job.folder + "/" + job_files::config, job.config);
  write_text(job.folder + "/" + script_file_, job.script);
  if (job.goes_on && fs::exists(job.archive_here)) copy_whole(job.archive_here, job.archive);
}

bool SharedFolderCluster::prepare(const TrainJob& job) const {
  std::error_code error;
  fs::create_directories(settings().folder, error);
  if (error) throw SystemError("cannot make the folder " + settings().folder + " (" + settings().file + "): " + error.message());
  if (!fs::create_directory(job.folder, error)) {
    if (!error) return false;
    throw SystemError("cannot make the folder " + job.folder + ": " + error.message());
  }
  try {
    write_files(job);
  } catch (...) {
    discard(job);
    throw;
  }
  return true;
}

void SharedFolderCluster::discard(const TrainJob& job) const noexcept {
  std::error_code ignored;
  fs::remove_all(job.folder, ignored);
}

std::string SharedFolderCluster::fetch(const TrainJob& job) const {
  std::error_code ignored;
  if (job.archive.empty() || !fs::exists(job.archive, ignored)) return "";
  if (job.archive_here.empty()) return job.archive;
  copy_whole(job.archive, job.archive_here);
  return job.archive_here;
}

}  // namespace consist::launch
