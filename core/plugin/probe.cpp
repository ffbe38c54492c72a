#include "core/plugin/probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "consist/error.h"
#include "core/base/system_error.h"

extern char** environ;

namespace consist {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

/// Reads until end of file or the deadline; false on the latter.
bool read_all(int fd, Deadline deadline, std::string& text) {
  for (char buffer[512];;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wait{fd, POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(got));
    constexpr std::size_t enough = 1 << 16;  // the answer is at the end
    if (text.size() > 2 * enough) text.erase(0, text.size() - enough);
  }
}

/// Waits for the child's end until the deadline, then kills it: one that closed its output may still hang. False if it was
/// killed.
bool wait_for(pid_t child, Deadline deadline, int& status) {
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) return true;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return false;
}

Availability read_answer(std::string text, int status) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (const std::string_view mark : {probe_works, probe_refused}) {
    if (const std::size_t at = text.rfind(mark); at != std::string::npos && WIFEXITED(status)) {
      return {.reason = text.substr(at + mark.size()), .loads = mark == probe_works};
    }
  }
  if (WIFSIGNALED(status))
    return {.reason = std::string("it crashed while it was probed (") + strsignal(WTERMSIG(status)) + ")", .loads = false};
  return {.reason = "it ended the process that probed it, with status " + std::to_string(WEXITSTATUS(status)), .loads = false};
}

/// The program `consist` that belongs to this library: <its folder>/../bin/consist. Not whatever program has loaded the library,
/// which need not know the subcommand (and might start itself over and over).
std::string prober() {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&probe_in_child), &library) == 0 || library.dli_fname == nullptr)
    throw SystemError("the place of the library consist is unknown");
  const std::filesystem::path program =
      std::filesystem::absolute(library.dli_fname).parent_path().parent_path() / "bin" / "consist";
  std::error_code ignored;
  if (!std::filesystem::exists(program, ignored)) throw SystemError(program.string() + " is not there; plugins are probed by it");
  return program.string();
}

}  // namespace

Availability probe_in_child(const std::filesystem::path& file, std::chrono::milliseconds timeout) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  const std::string program = prober();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe: " + system_error_text(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const std::string path = file.string();
  const char* arguments[] = {program.c_str(), "probe-plugin", path.c_str(), nullptr};
  pid_t child = -1;
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    throw SystemError(std::string("cannot start a process to probe ") + path + ": " + system_error_text(error));
  }
  std::string text;
  const bool answered = read_all(ends[0], deadline, text);
  close(ends[0]);
  int status = 0;
  const bool ended = wait_for(child, answered ? deadline : Deadline{}, status);
  if (!answered || !ended)
    return {.reason = "it did not answer within " + std::to_string(timeout.count()) + " ms", .loads = false};
  return read_answer(std::move(text), status);
}

}  // namespace consist
