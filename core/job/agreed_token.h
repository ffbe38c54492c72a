// A job's token where nobody has set one: the ranks agree on it by a channel that is private to the user or to the launcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace consist {

/// A new secret of a job.
std::string new_token();

enum class TokenChannel : std::uint8_t {
  none,  ///< the token is set, or there is no such channel
  host,  ///< all ranks are on one host: a file that only the user can read
  pmix,  ///< the key-value exchange of a launcher that speaks PMIx: Open MPI's mpirun, srun --mpi=pmix
};

/// The answer of rank 0 to the others.
struct Agreed {
  std::string token;
  std::string master_host;  ///< the name of rank 0's host; empty with TokenChannel::host
};

/// A token in a file of a folder of the user's, below `parent`. Ranks that name the same start get the same one; whichever comes
/// first makes it.
class HostToken {
 public:
  /// `start` is equal for the ranks of one job, and differs for jobs that run at the same time. Throws SystemError where the
  /// folder belongs to another user or can be read by others.
  explicit HostToken(const std::string& start, const std::filesystem::path& parent = default_parent());
  const std::string& token() const noexcept { return token_; }
  /// For one rank of the job, once all have joined: the next job gets another token.
  void remove() noexcept;
  static std::filesystem::path default_parent();  ///< /dev/shm, or where it is not there /tmp

 private:
  std::filesystem::path file_;
  std::string token_;
};

/// True if libpmix.so.2 can be loaded. A launcher that speaks PMIx says so by the variable PMIX_NAMESPACE.
bool has_pmix();

/// Called by all ranks of the start, once: rank 0 makes the token. Throws SystemError for what libpmix says, and where ranks do
/// not come within the timeout.
Agreed agree_by_pmix(std::chrono::milliseconds timeout);

}  // namespace consist
