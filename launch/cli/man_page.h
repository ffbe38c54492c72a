// Pages for man.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace consist::launch {

/// "consist-bench-expect" of "bench expect"; "consist" of nothing.
std::string page_name(const std::string& command);

/// The page of a command in roff: its `summary`, its help text as it stands, and the options of its row (command_lines.h) with
/// kinds, legal values and defaults; of "train" those of all runs. Throws UsageError for a command that has no row.
std::string man_page(const std::string& command, const std::string& summary, const std::string& help, const std::string& version);

/// The page of the program: what --help says, and the commands with their summaries.
std::string overview_page(const std::vector<std::pair<std::string, std::string>>& commands, const std::string& help,
                          const std::string& version);

}  // namespace consist::launch
