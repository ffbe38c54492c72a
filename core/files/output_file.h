// Files that others see whole or not at all: written under another name, made durable, renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace consist::files {

/// A new file, written from start to end. Every member throws SystemError naming the path, the bytes that were to be written and
/// the system's reason. Not thread-safe.
class OutputFile {
 public:
  explicit OutputFile(std::string path);  ///< creates or empties it
  ~OutputFile();                          ///< closes without making it durable
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  std::int64_t bytes() const noexcept { return bytes_; }  ///< written so far
  /// Waits until all is on the disk, then closes.
  void close();

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
};

/// Waits until the file or the folder is on the disk. Throws SystemError.
void sync(const std::string& path);

/// Renames `from`, which must be durable already, to `to`, replacing it, and makes the new name durable. Throws SystemError.
void replace(const std::string& from, const std::string& to);

/// Removes a file or a folder with all in it at the end of its scope, whatever its fate; nothing happens if it is no longer
/// there.
class RemovedAtEnd {
 public:
  explicit RemovedAtEnd(std::string path) : path_(std::move(path)) {}
  ~RemovedAtEnd();
  RemovedAtEnd(const RemovedAtEnd&) = delete;
  RemovedAtEnd& operator=(const RemovedAtEnd&) = delete;

 private:
  std::string path_;
};

}  // namespace consist::files
