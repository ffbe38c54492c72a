#include "core/archive/archive_place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "consist/error.h"
#include "consist/files.h"
#include "core/archive/archive.h"
#include "core/archive/reader.h"
#include "core/base/output_place.h"
#include "core/base/system_error.h"

namespace consist {
namespace {

/// Offset of the locked byte, far behind the end of any archive, so that this lock does not conflict with the other kind of lock
/// (flock of whole files, which HDF5's readers take).
constexpr off_t kLockedByte = off_t{1} << 62;

/// " (of a run that was cut off after step 12)", or nothing.
std::string cut_off_text(const std::string& path) {
  try {
    const ArchiveReader archive(path);
    if (archive.status() != "cut off") return "";
    const std::vector<double> steps = archive.column("step");
    return " (of a run that was cut off " +
           (steps.empty() ? "before its first step" : "after step " + std::to_string(static_cast<long long>(steps.back()))) + ")";
  } catch (const Error&) {
    return "";  // no archive
  }
}

std::string exists_text(const std::string& path) {
  return "the archive " + path + link_text(path) + cut_off_text(path) +
         " exists already; name another file, or replace it with --overwrite";
}

std::string in_use_text(const std::string& path) {
  return "the archive " + path + link_text(path) + " is being written by another run; name another file, or wait for its end";
}

[[noreturn]] void fail_to_create(const std::string& path, int error) {
  throw SystemError("cannot create the archive " + path + ": " + system_error_text(error) +
                    "; check that its folder exists and is writable");
}

struct flock lock_range() {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = kLockedByte;
  range.l_len = 1;
  return range;
}

/// Throws UsageError if another run has it. A file system that knows no locks goes without.
void lock(int fd, const std::string& path) {
  struct flock range = lock_range();
  if (::fcntl(fd, F_OFD_SETLK, &range) == 0 || (errno != EAGAIN && errno != EACCES)) return;
  throw UsageError(in_use_text(path));
}

/// --overwrite replaces archives, and files that have no content to lose: not what lies behind a mistyped name or a strange link.
void require_replaceable(int fd, const std::string& path) {
  constexpr std::array<char, 8> signature = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
  std::array<char, signature.size()> found{};
  const ssize_t bytes = ::pread(fd, found.data(), found.size(), 0);
  if (bytes == 0 || (bytes == static_cast<ssize_t>(found.size()) && found == signature)) return;
  throw UsageError("--overwrite replaces archives, and " + path + link_text(path) +
                   " is no HDF5 file; name another file, or remove this one yourself");
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

ArchiveLock lock_of(int fd) noexcept {
  struct flock range = lock_range();
  if (::fcntl(fd, F_OFD_GETLK, &range) != 0) return ArchiveLock::unknown;
  return range.l_type == F_UNLCK ? ArchiveLock::free : ArchiveLock::held;
}

Descriptor create_empty(const std::string& partial, const std::string& path) {
  ::unlink(partial.c_str());  // of a process of the same number that was killed
  Descriptor file(::open(partial.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) fail_to_create(path, errno);
  lock(file.fd(), path);
  return file;
}

Descriptor take_replaced(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file && errno == ENOENT) return file;
  if (!file) fail_to_create(path, errno);
  lock(file.fd(), path);
  struct stat opened {
  }, named{};
  // Between opening and locking another run may have put its archive in this one's place.
  if (::fstat(file.fd(), &opened) != 0 || ::stat(path.c_str(), &named) != 0 || opened.st_ino != named.st_ino) {
    throw UsageError(in_use_text(path));
  }
  require_replaceable(file.fd(), path);
  return file;
}

void require_free(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0) throw UsageError(exists_text(path));
}

void give_name(const std::string& partial, const std::string& path, bool overwrite) {
  const std::string target = overwrite ? behind_links(path) : path;
  const int error = !overwrite ? rename_to_free(partial, target) : std::rename(partial.c_str(), target.c_str()) != 0 ? errno : 0;
  if (error == EEXIST) throw UsageError(exists_text(path));
  if (error != 0) fail_to_create(path, error);
}

void check_archive_path(const std::string& path, bool overwrite) {
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0) {
    if (!S_ISREG(found.st_mode)) {
      throw UsageError("--archive " + path + " is " + (S_ISDIR(found.st_mode) ? "a folder" : "no regular file") +
                       "; name a file in a folder");
    }
    const Descriptor file(::open(path.c_str(), (overwrite ? O_RDWR : O_RDONLY) | O_CLOEXEC));
    if (file && lock_of(file.fd()) == ArchiveLock::held) throw UsageError(in_use_text(path));
    if (!overwrite) throw UsageError(exists_text(path));
    if (!file) fail_to_create(path, errno);
    require_replaceable(file.fd(), path);
  }
  if (!overwrite) require_free(path);  // a link whose target is not there is no free name either
  const std::string folder = folder_of(overwrite ? behind_links(path) : path);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_to_create(path, errno);
}

}  // namespace consist
