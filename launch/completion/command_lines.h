// What each command takes: for completion in shells and for man pages. The commands' own parsers and help texts are theirs;
// tests/commands/completion_test.cpp holds the help of each against its row here.
#pragma once

#include <span>
#include <string_view>

#include "core/config/option_table.h"

namespace consist::launch {

struct CommandLine {
  std::string_view command;  ///< "train", "bench collectives"
  bool of_train = false;     ///< it takes all options of train and of parts, too
  std::span<const RunOption> own = {};
  /// What a word without dashes is: "FILE", "FOLDER", "PLUGIN" (a name), "COMMAND", or alternatives "bash|zsh|fish". Empty: there
  /// is none.
  std::string_view operand = {};
};

/// In the order of the table of commands.
std::span<const CommandLine> command_lines();
/// Null if there is none of that name.
const CommandLine* find_command_line(std::string_view command);

}  // namespace consist::launch
