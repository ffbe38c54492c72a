// An input of a fuzzer as a file in memory, for code that reads files by path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>

namespace consist {

class InputPath {
 public:
  InputPath() : fd_(::memfd_create("fuzz-input", MFD_CLOEXEC)) {
    if (fd_ < 0) std::abort();
  }
  ~InputPath() { ::close(fd_); }
  InputPath(const InputPath&) = delete;
  InputPath& operator=(const InputPath&) = delete;

  /// Makes these bytes the file's content.
  void fill(const void* data, std::size_t size) const {
    if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace consist
