// A file that an observer adds to, step by step.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "consist/files.h"

namespace consist::observers {

/// A file whose bytes are in it once append() has returned, also if the process is killed then. Throws SystemError naming it.
class AppendedFile {
 public:
  /// One that may be there.
  explicit AppendedFile(std::string path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd_ < 0) throw SystemError("cannot write " + path_ + ": " + std::strerror(errno));
  }
  /// A new one, by the rule of outputs: a pipe or a device is written to as it is. Throws as open_output().
  explicit AppendedFile(const Output& output) : path_(output.path), fd_(open_output(output)) {}
  ~AppendedFile() { ::close(fd_); }
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  void append(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw SystemError("cannot write " + path_ + ": " + std::strerror(errno));
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace consist::observers
