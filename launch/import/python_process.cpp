#include "launch/import/python_process.h"

#include <sys/wait.h>

#include <cstdlib>

#include "consist/error.h"

namespace consist {

std::string python_interpreter() {
  const char* const given = std::getenv("CONSIST_PYTHON");
  return given != nullptr && *given != '\0' ? given : "python3";
}

int run_python(const std::vector<std::string>& arguments, const ProgramStreams& streams, std::chrono::seconds longest,
               const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  std::vector<std::string> words{python_interpreter()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const pid_t child = start_program(std::move(words), streams);
  if (child < 0) return child;
  int status = 0;
  if (!wait_for_program(child, deadline, status))
    throw SystemError(what + " by " + python_interpreter() + " took longer than " + std::to_string(longest.count()) + " s");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace consist
