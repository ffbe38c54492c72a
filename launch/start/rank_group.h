// The processes of one generation of a job, on this machine.
#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <vector>

#include "consist/socket.h"
#include "launch/start/rank_process.h"

namespace consist::launch {

/// Used from one thread. Ranks that still run when it is destroyed are killed.
class RankGroup {
 public:
  /// Starts the ranks of `job`, whose `joined` is made here. Throws SystemError where one cannot be started; the others are
  /// killed then.
  RankGroup(LocalJob job, const std::vector<std::string>& arguments, bool all_output);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  struct End {
    std::size_t rank = 0;
    int status = 0;          ///< as a shell shows it
    bool by_signal = false;  ///< else that is the status of its choice, also where it says that a signal asked for its end
    bool joined = false;     ///< it had said that the job has formed
  };
  /// The ranks that have ended since the last call.
  std::vector<End> reap();

  bool any_running() const;
  bool running(std::size_t rank) const { return processes_[rank].running; }
  std::size_t size() const noexcept { return processes_.size(); }
  pid_t pid(std::size_t rank) const { return processes_[rank].pid; }
  void send_to_all(int signal) const;

  /// Adds what poll() is to wait for.
  void add_outputs(std::vector<pollfd>& entries) const;
  /// Passes on what is there of the ranks' outputs.
  void pass_output_on();

 private:
  void note_joined();

  const int first_rank_;
  network::Socket joined_;  // what LocalJob::joined ends in
  std::vector<RankProcess> processes_;
};

}  // namespace consist::launch
