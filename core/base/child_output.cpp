#include "core/base/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "consist/error.h"
#include "core/base/system_error.h"

extern char** environ;

namespace consist {
namespace {

using ChildDeadline = std::chrono::steady_clock::time_point;

/// Reads until end of file or the deadline; false on the latter.
bool read_all_of_child(int fd, ChildDeadline deadline, std::string& text) {
  for (char buffer[512];;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wait{fd, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(got));
    constexpr std::size_t enough = 1 << 16;  // callers look for the end
    if (text.size() > 2 * enough) text.erase(0, text.size() - enough);
  }
}

/// Waits for the child's end until the deadline, then kills it: one that closed its output may still hang. False if it was
/// killed. One that hangs in a driver does not even die of that, and is left behind.
bool wait_for_child(pid_t child, ChildDeadline deadline, int& status) {
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) return true;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  constexpr std::chrono::milliseconds time_to_die{500};
  for (const ChildDeadline end = std::chrono::steady_clock::now() + time_to_die; std::chrono::steady_clock::now() < end;) {
    if (waitpid(child, &status, WNOHANG) != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

ChildOutput child_output(std::vector<std::string> words, std::chrono::milliseconds longest) {
  const ChildDeadline deadline = std::chrono::steady_clock::now() + longest;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe: " + system_error_text(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    throw SystemError("cannot start " + words[0] + ": " + system_error_text(error));
  }
  ChildOutput output;
  output.in_time = read_all_of_child(ends[0], deadline, output.text);
  close(ends[0]);
  output.in_time = wait_for_child(child, output.in_time ? deadline : ChildDeadline{}, output.status) && output.in_time;
  return output;
}

}  // namespace consist
