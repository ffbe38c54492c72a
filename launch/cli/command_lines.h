// What each command takes: for completion in shells and for man pages. The commands' own parsers and help texts are theirs;
// tests/commands/completion_test.cpp holds the help of each against its row here.
#pragma once

#include <span>
#include <string_view>

#include "core/config/option_table.h"

namespace consist::launch {

struct CommandLine {
  std::string_view command;  ///< "train", "bench collectives"
  bool of_train = false;     ///< it takes options of train and of parts, too
  std::span<const RunOption> own = {};
  /// The kind of a word without dashes: "FILE", "FOLDER", "PLUGIN" (a name), "COMMAND", or alternatives "bash|zsh|fish". Empty:
  /// there is none.
  std::string_view operand = {};
  std::span<const std::string_view> taken = {};  ///< the options of train that it takes; none: all of them, where `of_train`

  bool takes(std::string_view option_of_train) const;
};

/// In the order of the table of commands.
std::span<const CommandLine> command_lines();
/// Null if there is none of that name.
const CommandLine* find_command_line(std::string_view command);

}  // namespace consist::launch
