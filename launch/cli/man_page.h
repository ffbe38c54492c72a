// Pages for man.
#pragma once

#include <string>
#include <string_view>

#include "launch/cli/command.h"

namespace consist::launch {

/// "consist-bench-expect" of "bench expect".
std::string page_name(std::string_view command);

/// The page of a command in roff: its texts as they stand, and its options with kinds, legal values and defaults; of "train"
/// those of all runs.
std::string man_page(const Command& command, const std::string& version);

/// The page of the program, with the commands and their summaries.
std::string overview_page(CommandTable commands, const std::string& version);

}  // namespace consist::launch
