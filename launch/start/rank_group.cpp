#include "launch/start/rank_group.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "consist/error.h"
#include "core/base/system_error.h"

namespace consist::launch {

RankGroup::RankGroup(LocalJob job, const std::vector<std::string>& arguments, bool all_output) : first_rank_(job.first_rank) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw SystemError("cannot make a pipe: " + system_error_text(errno));
  joined_ = network::Socket(ends[0]);
  const network::Socket joined(ends[1]);
  job.joined = joined.fd();
  try {
    for (int rank = 0; rank < job.ranks; ++rank) processes_.push_back(start_rank(job, rank, arguments, all_output));
  } catch (...) {
    send_to_all(SIGKILL);
    throw;
  }
}

RankGroup::~RankGroup() {
  send_to_all(SIGKILL);
  for (const RankProcess& process : processes_) {
    if (process.running) waitpid(process.pid, nullptr, 0);
  }
}

bool RankGroup::any_running() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const RankProcess& process) { return process.running; });
}

/// Who has said that the job has formed.
void RankGroup::note_joined() {
  std::int32_t rank = 0;
  while (read(joined_.fd(), &rank, sizeof rank) == sizeof rank) {
    const auto here = static_cast<std::size_t>(rank - first_rank_);
    if (rank >= first_rank_ && here < processes_.size()) processes_[here].joined = true;
  }
}

std::vector<RankGroup::End> RankGroup::reap() {
  std::vector<End> ends;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    RankProcess& process = processes_[rank];
    int status = 0;
    if (!process.running || waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
    process.running = false;
    note_joined();  // what it said before its end
    const bool by_signal = WIFSIGNALED(status);
    ends.push_back({rank, by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status), by_signal, process.joined});
  }
  return ends;
}

void RankGroup::send_to_all(int signal) const {
  for (const RankProcess& process : processes_) {
    if (process.running) kill(-process.pid, signal);
  }
}

void RankGroup::add_outputs(std::vector<pollfd>& entries) const {
  for (const RankProcess& process : processes_) {
    for (const RankOutput* output : {&process.output, &process.errors}) {
      if (output->is_open()) entries.push_back({output->fd(), POLLIN, 0});
    }
  }
}

void RankGroup::pass_output_on() {
  for (RankProcess& process : processes_) {
    process.output.pass_on();
    process.errors.pass_on();
  }
}

}  // namespace consist::launch
