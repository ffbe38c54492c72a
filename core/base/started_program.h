// Another program: started with given streams, and waited for until a deadline.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "consist/export.h"

namespace consist {

/// Descriptors that the program's streams become.
struct ProgramStreams {
  int input = STDIN_FILENO;
  int output = STDOUT_FILENO;
  int errors = STDERR_FILENO;
};

enum class ProgramSession : bool {
  shared,
  own,  ///< what a terminal's Ctrl-C ends does not reach it
};

/// Pointers to the words, for exec; they end with null and live as long as `words`.
CONSIST_API std::vector<char*> pointers_to(std::vector<std::string>& words);

/// Starts words[0], found in PATH unless it has a slash, with the other words as arguments. Returns the process, or -errno where
/// it cannot be started.
CONSIST_API pid_t start_program(std::vector<std::string> words, const ProgramStreams& streams,
                                ProgramSession session = ProgramSession::shared);

/// Waits for the end of the process until the deadline, then kills it and returns false; one that hangs in a driver does not even
/// die of that, and is left behind half a second later. `status` is that of waitpid(), or -1, which is no exit, where the process
/// is no child of this one.
CONSIST_API bool wait_for_program(pid_t process, std::chrono::steady_clock::time_point deadline, int& status);

}  // namespace consist
