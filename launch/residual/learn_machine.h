// consist calibrate --learn: a machine file made of archives.
#pragma once

#include "launch/cli/command_line.h"

namespace consist::launch {

/// Writes --output, and says what was learned and how far held out runs are off. Returns the exit status. Throws as learn_from(),
/// and UsageError for options that measure.
int learn_machine(const CommandLine& line);

}  // namespace consist::launch
