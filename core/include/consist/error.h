// Exceptions of Consist. Every message says what was asked, what was found and what to do about it.
#pragma once

#include <stdexcept>
#include <string>

#include "consist/export.h"

namespace consist {

/// Base of everything that Consist throws on purpose.
class CONSIST_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
  ~Error() override;
};

/// The user asked for something that is not legal: an unknown name, a value out of range, a combination of parts
/// that cannot work. Raised before anything starts; the process exits with status 2.
class CONSIST_API UsageError : public Error {
 public:
  explicit UsageError(const std::string& what) : Error(what) {}
  ~UsageError() override;
};

/// A file or a message from outside is not what it claims to be: cut off, corrupt, of another format or version.
class CONSIST_API DataError : public Error {
 public:
  explicit DataError(const std::string& what) : Error(what) {}
  ~DataError() override;
};

/// The operating system, a device or a library refused: file not writable, disk full, out of memory, no such device.
class CONSIST_API SystemError : public Error {
 public:
  explicit SystemError(const std::string& what) : Error(what) {}
  ~SystemError() override;
};

/// A part (device, transport, ...) is installed but cannot work on this machine; the message is the reason.
class CONSIST_API UnavailableError : public Error {
 public:
  explicit UnavailableError(const std::string& what) : Error(what) {}
  ~UnavailableError() override;
};

/// Another rank died, is stuck or left the job; `rank()` is the rank to blame. The job ends on all ranks (docs/jobs.md).
class CONSIST_API PeerError : public Error {
 public:
  PeerError(int rank, const std::string& what) : Error(what), rank_(rank) {}
  ~PeerError() override;
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// A pass or an op broke a rule of the program (see Program). Always a bug in Consist or in a plugin, never of the user.
class CONSIST_API ProgramError : public Error {
 public:
  explicit ProgramError(const std::string& what) : Error(what) {}
  ~ProgramError() override;
};

}  // namespace consist
