// Reading parts of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "consist/export.h"

namespace consist {

/// An open file that is read by position. Read, not mapped: a file that shrinks or a disk that fails while in use is then an
/// error with a name, where a mapping would end the process with SIGBUS. Const members may be called from several threads.
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

}  // namespace consist
