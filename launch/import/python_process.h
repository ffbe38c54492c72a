// Python as a child process, for what the package consist and other packages of Python do.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/base/started_program.h"

namespace consist {

/// The interpreter: $CONSIST_PYTHON, else python3 of PATH.
std::string python_interpreter();

/// Runs the interpreter with `arguments` and waits. Returns its exit status, 128 + n for signal n; where it cannot be started,
/// -errno. Throws SystemError, which names `what`, if it takes longer than `longest`, upon which it is killed.
int run_python(const std::vector<std::string>& arguments, const ProgramStreams& streams, std::chrono::seconds longest,
               const std::string& what);

}  // namespace consist
