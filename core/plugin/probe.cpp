#include "core/plugin/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "consist/error.h"

extern char** environ;

namespace consist {
namespace {

/// Reads until end of file or the deadline; false on the latter.
bool read_all(int fd, std::chrono::steady_clock::time_point deadline, std::string& text) {
  for (char buffer[512];;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wait{fd, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

std::string probe_in_child(const std::filesystem::path& file, std::chrono::milliseconds timeout) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError(std::string("cannot make a pipe: ") + std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const std::string path = file.string();
  const char* arguments[] = {"consist", "probe-plugin", path.c_str(), nullptr};
  pid_t child = -1;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    throw SystemError(std::string("cannot start a process to probe ") + path + ": " + std::strerror(error));
  }
  std::string reason;
  const bool ended = read_all(ends[0], std::chrono::steady_clock::now() + timeout, reason);
  close(ends[0]);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return "it did not answer within " + std::to_string(timeout.count()) + " ms";
  if (WIFSIGNALED(status)) return std::string("it crashed while it was probed (") + strsignal(WTERMSIG(status)) + ")";
  while (!reason.empty() && reason.back() == '\n') reason.pop_back();
  return reason;
}

}  // namespace consist
