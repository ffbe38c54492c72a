// A folder in this machine's memory that is gone when its owner is.
#pragma once

#include <sys/types.h>

#include <string>

#include "consist/socket.h"

namespace consist::launch {

/// A new folder in /dev/shm that only this user can enter (mode 0700). A process of its own removes it, with what is in it, once
/// this object is destroyed or this process has ended, however that came.
class SnapshotFolder {
 public:
  /// Call it while this process has no other threads. Throws SystemError saying what to do where there is no such memory.
  SnapshotFolder();
  ~SnapshotFolder();  ///< returns when the folder is gone
  SnapshotFolder(const SnapshotFolder&) = delete;
  SnapshotFolder& operator=(const SnapshotFolder&) = delete;

  const std::string& path() const noexcept { return path_; }
  /// Removes what is in it.
  void clear() const;

 private:
  std::string path_;
  network::Socket alive_;  // the end of a pipe, at whose end the keeper acts
  pid_t keeper_ = -1;
};

}  // namespace consist::launch
