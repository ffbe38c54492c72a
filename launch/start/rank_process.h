// One rank as a child process of the launcher.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "consist/socket.h"

namespace consist::launch {

/// A local job, as every rank of it is told.
struct LocalJob {
  int ranks = 1;                     ///< on this machine
  int first_rank = 0;                ///< of these
  int of_all = 0;                    ///< ranks on all machines; 0: these are all
  int at_most = 0;                   ///< ranks of the job when no machine is left out; 0: none ever is
  std::string master = "127.0.0.1";  ///< rank 0's host
  std::string machine;               ///< JobAddress::machine
  std::string token;
  std::uint16_t port = 0;
  int listener = -1;  ///< the socket on that port, inherited by rank 0 alone, which must be here
  int joined = -1;  ///< the end of a pipe on which each rank says that all have joined (JobAddress::joined_fd), inherited by all
  int generation = 0;     ///< Job::generation()
  int board = -1;         ///< the RankBoard, inherited by all; -1: failed ranks are not replaced
  std::string snapshots;  ///< Continuation::snapshots
};

/// A read end of a rank's output, cut into lines that carry the rank.
class RankOutput {
 public:
  RankOutput() = default;
  RankOutput(network::Socket pipe, int rank, int target);
  int fd() const noexcept { return pipe_.fd(); }
  bool is_open() const noexcept { return static_cast<bool>(pipe_); }
  /// Passes on what is there without waiting; closes at the end of the stream.
  void pass_on();

 private:
  void write_line(std::string_view line) const;
  network::Socket pipe_;
  std::string prefix_;
  int target_ = -1;
  std::string partial_;
};

struct RankProcess {
  pid_t pid = -1;  ///< also its process group
  bool running = false;
  bool joined = false;  ///< the job has formed: it notices by itself when this rank dies
  RankOutput output;    ///< closed where the rank writes straight through
  RankOutput errors;
};

/// Starts this executable with `arguments` as the rank with that local number. The child leads a process group of its own, so
/// that a signal of the terminal reaches it only through the launcher, and is killed by the system when the calling thread ends.
/// Rank 0 of the job writes straight to the launcher's outputs; of the others, errors come through `errors`, and the rest is
/// dropped unless `all_output`. Throws SystemError.
RankProcess start_rank(const LocalJob& job, int local_rank, const std::vector<std::string>& arguments, bool all_output);

}  // namespace consist::launch
