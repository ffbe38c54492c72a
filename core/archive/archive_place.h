// Place of an archive: its name, links to it, and the lock of the run that writes it. Include from .cpp files of core/archive
// only.
#pragma once

#include <string>
#include <utility>

namespace consist {

/// Owns a descriptor. The lock on an archive lasts as long, and no longer than the process, however that ends.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

/// State of an archive's lock, which a run holds while it writes the archive.
enum class ArchiveLock { held, free, unknown /* the file system knows no locks */ };
ArchiveLock lock_of(int fd) noexcept;

/// Creates an empty file for the archive `path`, under the name `partial`, with plain system calls, whose reasons are clearer
/// than HDF5's; locked as long as the result lives. Throws SystemError.
Descriptor create_empty(const std::string& partial, const std::string& path);

/// The file that is to be replaced, locked; none if there is none. Throws UsageError if another run writes it, or if it is no
/// archive and has content to lose; SystemError if it cannot be opened.
Descriptor take_replaced(const std::string& path);

/// Throws UsageError if there is something of that name, be it a link to nothing.
void require_free(const std::string& path);

/// Gives the file `partial` the name to which `path` leads: at once in place of what has it, or, without `overwrite`, if nothing
/// has it. Throws UsageError if something does, SystemError if the system refuses.
void give_name(const std::string& partial, const std::string& path, bool overwrite);

}  // namespace consist
