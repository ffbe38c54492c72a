// Python as a child process, for what the package consist and other packages of Python do.
#pragma once

#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

namespace consist {

/// The interpreter: $CONSIST_PYTHON, else python3 of PATH.
std::string python_interpreter();

/// Pointers to the words, for exec; they end with null and live as long as `words`.
std::vector<char*> pointers_to(std::vector<std::string>& words);

/// Descriptors that the child's streams become.
struct PythonStreams {
  int input = STDIN_FILENO;
  int output = STDOUT_FILENO;
  int errors = STDERR_FILENO;
};

/// Runs the interpreter with `arguments` and waits. Returns its exit status, 128 + n for signal n; where it cannot be started,
/// -errno. Throws SystemError, which names `what`, if it takes longer than `longest`, upon which it is killed.
int run_python(const std::vector<std::string>& arguments, const PythonStreams& streams, std::chrono::seconds longest,
               const std::string& what);

}  // namespace consist
