// Running a Python script from a test, with the packages of tests/requirements.txt.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace consist {

/// The interpreter: CONSIST_TEST_PYTHON, or the one of the virtual environment that tests/run.sh makes; nothing if there is
/// neither.
inline std::optional<std::string> test_python() {
  if (const char* given = std::getenv("CONSIST_TEST_PYTHON"); given != nullptr && *given != '\0') return given;
  for (const std::string root : {CONSIST_BINARY_DIR, CONSIST_SOURCE_DIR "/build"}) {
    const std::string path = root + "/venv/bin/python";
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return std::nullopt;
}

/// True if tests may do without Python: on a developer's machine, not in CI.
inline bool python_is_optional() {
  return std::getenv("CI") == nullptr;
}

struct PythonResult {
  int status = -1;     ///< of the process, as wait() gives it
  std::string output;  ///< stdout and stderr together
};

/// Runs `python arguments...` to its end. The arguments are not seen by a shell.
inline PythonResult run_python(const std::string& python, const std::vector<std::string>& arguments) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::close(ends[0]);
    std::vector<char*> argv = {const_cast<char*>(python.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(python.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  PythonResult result;
  std::array<char, 4096> block{};
  for (ssize_t got = 0; (got = ::read(ends[0], block.data(), block.size())) > 0;)
    result.output.append(block.data(), static_cast<std::size_t>(got));
  ::close(ends[0]);
  ::waitpid(child, &result.status, 0);
  return result;
}

}  // namespace consist

/// Defines `python` in a test, or ends the test: skipped for a developer without the environment, failed in CI.
#define CONSIST_NEEDS_PYTHON(python)                                                                                             \
  const auto found_python = ::consist::test_python();                                                                            \
  if (!found_python && ::consist::python_is_optional())                                                                          \
    GTEST_SKIP() << "no Python environment: tests/run.sh makes it in build/venv";                                                \
  ASSERT_TRUE(found_python) << "no Python environment: set CONSIST_TEST_PYTHON, or make build/venv from tests/requirements.txt"; \
  const std::string python = *found_python
