#include "launch/start/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "core/base/system_error.h"
#include "launch/start/continuation.h"

extern char** environ;

namespace consist::launch {
namespace {

constexpr std::size_t max_line = std::size_t{64} << 10U;

[[noreturn]] void fail(const std::string& what) {
  throw SystemError("cannot start a rank: " + what + ": " + system_error_text(errno));
}

struct Pipe {
  network::Socket read;
  network::Socket write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("no pipe");
  Pipe pipe{network::Socket(ends[0]), network::Socket(ends[1])};
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return pipe;
}

/// This process's environment with the variables of torchrun and the job's own in place of whatever was there.
std::vector<std::string> make_environment(const LocalJob& job, int local_rank) {
  const int rank = job.first_rank + local_rank;
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  for (const char* name :
       {"CONSIST_JOB_TOKEN_FILE", "CONSIST_JOB_FD", "CONSIST_JOB_PORT", "TORCHELASTIC_USE_AGENT_STORE", "CONSIST_JOB_GENERATION",
        "CONSIST_JOB_MACHINE", board_variable, snapshots_variable, most_ranks_variable}) {
    variables.erase(name);
  }
  variables["RANK"] = std::to_string(rank);
  variables["LOCAL_RANK"] = std::to_string(local_rank);
  variables["WORLD_SIZE"] = std::to_string(job.of_all > 0 ? job.of_all : job.ranks);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(job.ranks);
  variables["MASTER_ADDR"] = job.master;
  if (!job.machine.empty()) variables["CONSIST_JOB_MACHINE"] = job.machine;
  variables["MASTER_PORT"] = std::to_string(job.port);
  variables["CONSIST_JOB_TOKEN"] = job.token;
  variables["CONSIST_JOB_JOINED_FD"] = std::to_string(job.joined);
  if (rank == 0) variables["CONSIST_JOB_FD"] = std::to_string(job.listener);
  if (job.board >= 0) {
    variables["CONSIST_JOB_GENERATION"] = std::to_string(job.generation);
    variables[board_variable] = std::to_string(job.board);
    variables[snapshots_variable] = job.snapshots;
    if (job.at_most > 0) variables[most_ranks_variable] = std::to_string(job.at_most);
  }
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Runs in the child; only calls that are safe between fork and exec.
[[noreturn]] void become_rank(pid_t launcher, const std::array<int, 3>& inherited, int output, int errors, char** arguments,
                              char** environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(128 + SIGKILL);  // the launcher died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int fd : inherited) {
    if (fd >= 0) fcntl(fd, F_SETFD, 0);
  }
  if (output >= 0) dup2(output, STDOUT_FILENO);
  if (errors >= 0) dup2(errors, STDERR_FILENO);
  execve("/proc/self/exe", arguments, environment);
  constexpr std::string_view message = "consist launch: cannot run this executable again\n";
  if (write(STDERR_FILENO, message.data(), message.size()) < 0) _exit(126);
  _exit(127);
}

}  // namespace

RankOutput::RankOutput(network::Socket pipe, int rank, int target)
    : pipe_(std::move(pipe)), prefix_("[rank " + std::to_string(rank) + "] "), target_(target) {}

void RankOutput::pass_on() {
  std::array<char, 16'384> buffer;
  while (pipe_) {
    const ssize_t count = read(pipe_.fd(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) {
      if (!partial_.empty()) write_line(partial_);
      partial_.clear();
      pipe_.close();
      return;
    }
    partial_.append(buffer.data(), static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (std::size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      write_line(std::string_view(partial_).substr(begin, end - begin));
    }
    partial_.erase(0, begin);
    if (partial_.size() > max_line) {
      write_line(partial_);
      partial_.clear();
    }
  }
}

void RankOutput::write_line(std::string_view line) const {
  // One write, so that lines of several ranks do not mix.
  std::string text = prefix_ + printable(line) + "\n";
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t count = write(target_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // the launcher's own output is closed
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
}

RankProcess start_rank(const LocalJob& job, int local_rank, const std::vector<std::string>& arguments, bool all_output) {
  const int rank = job.first_rank + local_rank;
  RankProcess process;
  Pipe output;
  Pipe errors;
  network::Socket nowhere;
  if (rank > 0) {
    errors = make_pipe();
    process.errors = RankOutput(std::move(errors.read), rank, STDERR_FILENO);
    if (all_output) {
      output = make_pipe();
      process.output = RankOutput(std::move(output.read), rank, STDOUT_FILENO);
    } else {
      nowhere = network::Socket(open("/dev/null", O_WRONLY | O_CLOEXEC));
      if (!nowhere) fail("/dev/null");
    }
  }
  std::vector<std::string> argument_texts{"consist"};
  argument_texts.insert(argument_texts.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment_texts = make_environment(job, local_rank);
  const std::vector<char*> argument_list = pointers(argument_texts);
  const std::vector<char*> environment_list = pointers(environment_texts);

  const pid_t launcher = getpid();
  process.pid = fork();
  if (process.pid < 0) fail("fork");
  if (process.pid == 0) {
    become_rank(launcher, {rank == 0 ? job.listener : -1, job.joined, job.board}, output.write ? output.write.fd() : nowhere.fd(),
                errors.write.fd(), const_cast<char**>(argument_list.data()), const_cast<char**>(environment_list.data()));
  }
  setpgid(process.pid, process.pid);  // in the parent and in the child: either may come first
  process.running = true;
  return process;
}

}  // namespace consist::launch
