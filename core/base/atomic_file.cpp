#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "consist/error.h"
#include "consist/files.h"
#include "core/base/output_place.h"
#include "core/base/system_error.h"

namespace consist {
namespace {

bool out_of_space(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

/// Bytes that an ordinary user may still write to the file system of `path`; -1 if that is not known.
std::int64_t free_bytes(const std::string& path) {
  struct statvfs info = {};
  if (::statvfs(path.c_str(), &info) != 0) return -1;
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

}  // namespace

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw SystemError("cannot open the folder " + folder + ": " + system_error_text(errno));
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems have nothing to sync in a folder and say so.
  if (result != 0 && error != EINVAL && error != ENOTSUP) {
    throw SystemError("cannot bring the folder " + folder + " to the disk: " + system_error_text(error));
  }
}

AtomicFile::AtomicFile(std::string path, bool replaces)
    : path_(std::move(path)), partial_(path_ + ".partial-" + std::to_string(::getpid())), replaces_(replaces) {
  fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    const int error = errno;
    partial_.clear();
    fail(error, 0);
  }
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::exchange(other.partial_, {})),
      replaces_(other.replaces_),
      fd_(std::exchange(other.fd_, -1)),
      reserved_(other.reserved_),
      written_(other.written_) {}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!partial_.empty()) ::unlink(partial_.c_str());
  partial_.clear();
}

void AtomicFile::fail(int error, std::int64_t needed) const {
  std::string what = "cannot write " + path_ + ": " + system_error_text(error);
  if (out_of_space(error)) {
    what += "; it needs " + std::to_string(std::max(reserved_, needed)) + " bytes";
    const std::int64_t free = free_bytes(folder_of(path_));
    if (free >= 0)
      what +=
          ", " + std::to_string(free) + " are free" + (error == EFBIG ? " but the process may not write a file so large" : "");
    what += "; make room or choose another folder";
  } else if (error == ENOENT || error == EACCES || error == EROFS || error == ENOTDIR) {
    what += "; check that its folder exists and is writable";
  }
  throw SystemError(what);
}

void AtomicFile::reserve(std::int64_t bytes) {
  reserved_ = bytes;
  if (bytes == 0 || ::fallocate(fd_, 0, 0, bytes) == 0) return;
  if (out_of_space(errno)) fail(errno, bytes);
  // A file system without fallocate. Its free space is only a hint, yet one that saves writing in vain.
  const std::int64_t free = free_bytes(folder_of(path_));
  if (free >= 0 && free < bytes) fail(ENOSPC, bytes);
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(fd_, from, std::min(bytes, most_bytes_a_call));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(errno, written_ + static_cast<std::int64_t>(bytes));
    from += done;
    bytes -= static_cast<std::size_t>(done);
    written_ += done;
  }
}

void AtomicFile::finish() {
  if (fd_ < 0) throw ProgramError("the file " + path_ + " is finished twice");
  if (written_ < reserved_ && ::ftruncate(fd_, written_) != 0) fail(errno, written_);
  if (::fsync(fd_) != 0) fail(errno, written_);
  // Network file systems report a full disk here.
  if (::close(std::exchange(fd_, -1)) != 0) fail(errno, written_);
}

void AtomicFile::publish() {
  if (fd_ >= 0 || partial_.empty()) throw ProgramError("the file " + path_ + " is published before it is finished, or twice");
  const int error = replaces_ ? (std::rename(partial_.c_str(), path_.c_str()) == 0 ? 0 : errno) : rename_to_free(partial_, path_);
  if (error == EEXIST) throw UsageError(path_ + " has appeared meanwhile and is not replaced");
  if (error != 0) fail(error, written_);
  partial_.clear();
  sync_folder(folder_of(path_));
}

}  // namespace consist
