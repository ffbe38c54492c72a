// NCCL's log, read by this process instead of people.
#pragma once

#include <cstddef>
#include <string>

namespace consist::nccl {

/// One per process, since NCCL has one log per process: a file in memory that NCCL writes and this reads. Thread-safe.
class LogCapture {
 public:
  /// The capture, begun by the first call, which must come before NCCL's first. If NCCL_DEBUG was set by the user, wants_lines()
  /// is true. Throws SystemError.
  static LogCapture& instance();

  std::size_t size() const noexcept;
  /// From byte `begin` to the end; the last line may be incomplete.
  std::string text(std::size_t begin = 0) const;
  /// The user asked for NCCL's log: what was read shall be passed on.
  bool wants_lines() const noexcept { return wants_lines_; }

 private:
  LogCapture();
  int file_ = -1;  // open for the life of the process, as NCCL's end is
  bool wants_lines_ = false;
};

}  // namespace consist::nccl
