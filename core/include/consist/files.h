// Files: reading by position, and writing a file that appears only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "consist/export.h"

namespace consist {

/// An open file that is read by position. It is not mapped into memory: a file that shrinks or a disk that fails is then an error
/// that names the file, where a mapping would end the process with SIGBUS. THREADS: const members from several at a time.
class CONSIST_API InputFile {
 public:
  /// Throws SystemError if there is no such file, or it is no regular file or may not be read.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  /// Reads exactly `bytes` at `offset`. Throws DataError if the file ends before, SystemError if the system refuses.
  void read(std::int64_t offset, void* to, std::size_t bytes) const;

  const std::string& path() const noexcept { return path_; }
  std::int64_t size() const noexcept { return size_; }  ///< when it was opened

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

/// The whole of a small text file. Throws as InputFile does, and DataError if it has more than `most` bytes.
CONSIST_API std::string read_text(const std::string& path, std::int64_t most);

/// A file that appears under its name only when it is complete and on the disk. Until publish() it is "<path>.partial-<pid>" in
/// the same folder, and it is removed if it is never published. THREADS: one at a time. ERRORS: SystemError that names the
/// path, the system's reason and, where space has run out, how many bytes the file needs and how many are free.
class CONSIST_API AtomicFile {
 public:
  /// Creates the partial file; the folder must exist.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  /// States the final size and sets the space aside where the file system can, so that a full disk shows before the work is done.
  void reserve(std::int64_t bytes);
  /// Appends.
  void write(const void* data, std::size_t bytes);
  /// Brings what was written to the disk and closes the file; still under its partial name.
  void finish();
  /// Gives the finished file its name, replacing what was there; the change of the folder is on the disk on return.
  void publish();
  /// finish() and publish().
  void commit() {
    finish();
    publish();
  }

  const std::string& path() const noexcept { return path_; }
  /// Where the file is until publish(), for a library that writes it by path: instead of write(), and before finish().
  const std::string& partial_path() const noexcept { return partial_; }
  std::int64_t bytes() const noexcept { return written_; }  ///< by write()

 private:
  [[noreturn]] void fail(int error, std::int64_t needed) const;
  void discard() noexcept;

  std::string path_, partial_;
  int fd_ = -1;
  std::int64_t reserved_ = 0, written_ = 0;
};

/// Brings changes of a folder's entries to the disk. Throws SystemError.
CONSIST_API void sync_folder(const std::string& folder);

/// The folder that a file lies in: "." for a bare name.
CONSIST_API std::string folder_of(const std::string& path);

}  // namespace consist
