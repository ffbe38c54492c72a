// The archives that consist watch looks at, again and again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/view/show/run_view.h"

namespace consist::launch {

/// Files that are named, and the archives of runs in folders that are named. Used from one thread.
class WatchedRuns {
 public:
  /// `wait`: seconds in which a file may appear that is not there, and in which another run may begin in a folder once all have
  /// ended. `now`: seconds, of any clock that goes on evenly.
  WatchedRuns(std::vector<std::string> named, double wait, double now);

  /// Reads what has changed. Throws SystemError for a file that has not appeared in time, and what ArchiveReader throws for one
  /// that was never readable; one that was and is not keeps what was read, and is read again.
  void refresh(double now);

  /// In the order of the command line; those of a folder by name.
  const std::vector<RunView>& runs() const noexcept { return runs_; }
  /// Names of files that are not there yet.
  const std::vector<std::string>& missing() const noexcept { return missing_; }
  /// True if no run goes on, and none is waited for any more.
  bool ended(double now) const;

 private:
  struct Seen {
    std::int64_t inode = 0, size = 0, time = 0;
    bool operator==(const Seen&) const = default;
  };
  void read(const std::string& path, bool in_folder);

  std::vector<std::string> named_;
  double wait_, began_, went_on_;
  bool folders_ = false;
  std::map<std::string, std::pair<Seen, RunView>> read_;  // by path
  std::vector<RunView> runs_;
  std::vector<std::string> missing_;
};

}  // namespace consist::launch
