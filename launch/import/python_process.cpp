#include "launch/import/python_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

#include "consist/error.h"
#include "core/base/system_error.h"

namespace consist {
namespace {

using Clock = std::chrono::steady_clock;

/// The child's status as waitpid() has it.
int status_of(pid_t child, std::chrono::seconds longest, const std::string& what) {
  for (const Clock::time_point end = Clock::now() + longest;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) throw SystemError("lost " + what + ": " + system_error_text(errno));
    if (Clock::now() < end) continue;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    throw SystemError(what + " by " + python_interpreter() + " took longer than " + std::to_string(longest.count()) + " s");
  }
}

}  // namespace

std::string python_interpreter() {
  const char* const given = std::getenv("CONSIST_PYTHON");
  return given != nullptr && *given != '\0' ? given : "python3";
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

int run_python(const std::vector<std::string>& arguments, const PythonStreams& streams, std::chrono::seconds longest,
               const std::string& what) {
  std::vector<std::string> words{python_interpreter()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, streams.input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, streams.output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, streams.errors, STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, words[0].c_str(), &actions, nullptr, pointers_to(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -error;
  const int status = status_of(child, longest, what);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace consist
