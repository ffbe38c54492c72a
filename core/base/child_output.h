// A program that is run for what it prints.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "consist/export.h"

namespace consist {

struct ChildOutput {
  std::string text;     ///< of its standard output; of a long one the end
  int status = 0;       ///< as waitpid() has it
  bool in_time = true;  ///< false: it was killed
};

/// Runs words[0], found in PATH unless it has a slash, with the other words as arguments, nothing to read and its errors thrown
/// away. After `longest` it is killed, and the call returns within half a second. Throws SystemError if it cannot be started.
CONSIST_API ChildOutput child_output(std::vector<std::string> words, std::chrono::milliseconds longest);

}  // namespace consist
