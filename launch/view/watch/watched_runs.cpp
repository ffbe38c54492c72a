#include "launch/view/watch/watched_runs.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "consist/error.h"
#include "consist/text.h"

namespace consist::launch {
namespace fs = std::filesystem;

namespace {

std::vector<std::string> archives_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string extension = at->path().extension().string();
    std::error_code ignored;
    if ((extension == ".h5" || extension == ".hdf5") && at->is_regular_file(ignored)) paths.push_back(at->path().string());
  }
  if (error) throw SystemError("cannot list the folder " + printable(folder) + ": " + error.message());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

WatchedRuns::WatchedRuns(std::vector<std::string> named, double wait, double now)
    : named_(std::move(named)), wait_(wait), began_(now), went_on_(now) {}

void WatchedRuns::read(const std::string& path, bool in_folder) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return;
  const Seen seen{static_cast<std::int64_t>(file.st_ino), file.st_size,
                  static_cast<std::int64_t>(file.st_mtim.tv_sec) * 1'000'000'000 + file.st_mtim.tv_nsec};
  const auto before = read_.find(path);
  // The status of a run that goes on may change without the file: its process may be gone.
  if (before != read_.end() && before->second.first == seen && !before->second.second.running()) return;
  try {
    read_.insert_or_assign(path, std::pair(seen, read_run(path)));
  } catch (const Error&) {
    // In a folder there are other files, such as comparison.h5. Of a file that was readable the next look will succeed.
    if (before == read_.end() && !in_folder) throw;
  }
}

void WatchedRuns::refresh(double now) {
  std::vector<std::string> shown;
  missing_.clear();
  folders_ = false;
  for (const std::string& name : named_) {
    std::error_code ignored;
    if (fs::is_directory(name, ignored)) {
      folders_ = true;
      for (const std::string& path : archives_in(name)) {
        read(path, true);
        shown.push_back(path);
      }
      continue;
    }
    if (!fs::exists(name, ignored) && !read_.contains(name)) {
      if (now - began_ >= wait_)
        throw SystemError("there is no archive " + printable(name) +
                          (wait_ > 0 ? ", nor did it appear in " + duration_text(wait_)
                                     : std::string("; give --wait SECONDS if its run has not begun yet")));
      missing_.push_back(name);
      continue;
    }
    read(name, false);
    shown.push_back(name);
  }
  runs_.clear();
  for (const std::string& path : shown) {
    if (const auto found = read_.find(path); found != read_.end()) runs_.push_back(found->second.second);
  }
  const bool any = std::any_of(runs_.begin(), runs_.end(), [](const RunView& run) { return run.running(); });
  if (any) went_on_ = now;
}

bool WatchedRuns::ended(double now) const {
  const bool any = std::any_of(runs_.begin(), runs_.end(), [](const RunView& run) { return run.running(); });
  return !any && missing_.empty() && (!folders_ || now - went_on_ >= wait_);
}

}  // namespace consist::launch
