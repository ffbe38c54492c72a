#include "core/base/started_program.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <thread>

extern char** environ;

namespace consist {
namespace {

using ProgramClock = std::chrono::steady_clock;

/// True once the process has ended, or is no child of this one.
bool has_ended(pid_t process, ProgramClock::time_point deadline, int& status) {
  status = 0;
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) status = -1;
    if (ended == process || status == -1) return true;
    if (ProgramClock::now() >= deadline) return false;
  }
}

}  // namespace

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t start_program(std::vector<std::string> words, const ProgramStreams& streams, ProgramSession session) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, streams.input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, streams.output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, streams.errors, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (session == ProgramSession::own) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t process = -1;
  const int error = posix_spawnp(&process, words[0].c_str(), &actions, &attributes, pointers_to(words).data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? process : -error;
}

bool wait_for_program(pid_t process, ProgramClock::time_point deadline, int& status) {
  if (has_ended(process, deadline, status)) return true;
  kill(process, SIGKILL);
  has_ended(process, ProgramClock::now() + std::chrono::milliseconds(500), status);
  return false;
}

}  // namespace consist
