#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/system_error.h"

namespace consist {
InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // Without O_NONBLOCK, opening a pipe would wait for its other end.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw SystemError("cannot read " + path_ + ": " + system_error_text(errno));
  struct stat info = {};
  const bool known = ::fstat(fd_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    const std::string why =
        known ? (S_ISDIR(info.st_mode) ? "it is a folder" : "it is no regular file") : system_error_text(errno);
    ::close(std::exchange(fd_, -1));
    throw SystemError("cannot read " + path_ + ": " + why);
  }
  size_ = info.st_size;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

void InputFile::read(std::int64_t offset, void* to, std::size_t bytes) const {
  char* into = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t done = ::pread(fd_, into, std::min(bytes, most_bytes_a_call), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0)
      throw SystemError("cannot read " + path_ + " at byte " + std::to_string(offset) + ": " + system_error_text(errno));
    if (done == 0) {
      throw DataError(path_ + " is cut off: it ends at byte " + std::to_string(offset) + ", " + std::to_string(bytes) +
                      " more are expected");
    }
    into += done;
    offset += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

std::string read_text(const std::string& path, std::int64_t most) {
  const InputFile file(path);
  if (file.size() > most) {
    throw DataError(path + " has " + std::to_string(file.size()) + " bytes, more than the " + std::to_string(most) +
                    " that such a file may have");
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

}  // namespace consist
