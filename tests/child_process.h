// Running a program to its end from a test.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

namespace consist::test {

struct ChildResult {
  int status = -1;     ///< as a shell shows it: the exit status, or 128 + signal
  std::string output;  ///< stdout and stderr together
};

/// Options of one of several runs that a test makes alike.
struct NamedOptions {
  const char* name;
  std::vector<std::string> options;
};

/// Runs words[0], found in PATH unless it has a slash, with the other words as arguments. It is killed, and std::runtime_error
/// thrown, if it takes longer than `limit`.
inline ChildResult run_child(const std::vector<std::string>& words, std::chrono::seconds limit = std::chrono::seconds(120)) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe");
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  ChildResult result;
  const auto end = std::chrono::steady_clock::now() + limit;
  bool in_time = true;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd entry{ends[0], POLLIN, 0};
    if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) == 0) {
      in_time = false;
      ::kill(child, SIGKILL);
      break;
    }
    std::array<char, 4096> block{};
    const ssize_t got = ::read(ends[0], block.data(), block.size());
    if (got <= 0) break;
    result.output.append(block.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!in_time)
    throw std::runtime_error(words[0] + " took longer than " + std::to_string(limit.count()) + " s; so far:\n" + result.output);
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace consist::test
