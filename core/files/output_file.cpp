#include "core/files/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "consist/error.h"

namespace consist::files {

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw SystemError("cannot create " + path_ + ": " + std::strerror(errno) + "; check that its folder exists and is writable");
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw SystemError("cannot write " + std::to_string(bytes.size()) + " bytes at byte " + std::to_string(bytes_) + " of " +
                        path_ + ": " + std::strerror(errno));
    }
    bytes_ += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::close() {
  const int fd = std::exchange(fd_, -1);
  const int sync_error = ::fsync(fd) == 0 ? 0 : errno;
  const int close_error = ::close(fd) == 0 ? 0 : errno;
  if (const int error = sync_error != 0 ? sync_error : close_error; error != 0) {
    throw SystemError("cannot bring the " + std::to_string(bytes_) + " bytes of " + path_ +
                      " to the disk: " + std::strerror(error));
  }
}

void sync(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw SystemError("cannot open " + path + ": " + std::strerror(errno));
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error != 0) throw SystemError("cannot bring " + path + " to the disk: " + std::strerror(error));
}

void replace(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw SystemError("cannot rename " + from + " to " + to + ": " + std::strerror(errno));
  }
  const std::filesystem::path parent = std::filesystem::path(to).parent_path();
  sync(parent.empty() ? "." : parent.string());
}

RemovedAtEnd::~RemovedAtEnd() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace consist::files
