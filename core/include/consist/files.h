// Files: reading by position, and writing a file that appears only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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
  /// Creates the partial file; the folder must exist. Without `replaces`, publish() throws UsageError if the name has been taken.
  explicit AtomicFile(std::string path, bool replaces = true);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  /// States the final size in bytes and reserves the space if the file system can, so that a full disk is an error at once.
  void reserve(std::int64_t bytes);
  /// Appends.
  void write(const void* data, std::size_t bytes);
  /// Writes all data through to the disk and closes the file, which keeps its partial name.
  void finish();
  /// Gives the finished file its name, in place of what was there; the change of the folder is on the disk on return.
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
  bool replaces_ = true;
  int fd_ = -1;
  std::int64_t reserved_ = 0, written_ = 0;
};

/// A file for results that a user names.
struct Output {
  std::string option;  ///< the option that names the file, for messages: "--trace"
  std::string path;
  bool overwrite = false;  ///< a file that is there may be replaced
  /// A file that begins with this text may be replaced, too: it can be made again from the same input. Empty: none.
  std::string mark = {};
};

/// Checks the rule that every output follows. A new name becomes a file. A regular file is replaced only with `overwrite`; if the
/// name is a link, its target is replaced. Pipes, terminals and other character devices, links to them, and descriptors of the
/// process (/dev/stdout) are written to as they are; for these it returns true. Throws UsageError for a file that may not be
/// replaced, for folders, sockets, block devices, and without `overwrite` for links to nothing; SystemError if the file or its
/// folder cannot be written. Changes nothing: call it before the work whose result is written.
CONSIST_API bool check_output(const Output& output);

/// Writes an output by that rule; a file appears when it is complete. Throws as check_output() and AtomicFile do, and SystemError
/// for a pipe without a reader.
CONSIST_API void write_output(const Output& output, std::string_view text);

/// Opens an output by that rule, to be written in several calls: a file is new and empty. The caller closes the descriptor.
/// Throws as write_output().
CONSIST_API int open_output(const Output& output);

/// Writes changes of a folder's entries through to the disk. Throws SystemError.
CONSIST_API void sync_folder(const std::string& folder);

/// The folder that a file lies in: "." for a bare name.
CONSIST_API std::string folder_of(const std::string& path);

}  // namespace consist
