// A command line, read against the command's row: options that were given, operands, and words about parts.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launch/cli/command.h"

namespace consist {

/// A value that was given, and how messages name it: "--steps" or "run.toml, line 3: steps".
struct GivenOption {
  std::string said;
  std::vector<std::string> values;  ///< one, unless the option may be repeated; of options of a run not checked yet
};

struct CommandLine {
  const Command* command = nullptr;          ///< never null once it is read
  std::vector<std::string> arguments;        ///< as they were given
  std::map<std::string, GivenOption> given;  ///< options of the command and of a run, by name
  std::vector<std::string> operands;         ///< words that are neither options nor their values, and all behind "--"
  /// Words of a command that takes options of parts that are none of these: `--<plugin>.<option> VALUE`, read by
  /// read_plugin_options().
  std::vector<std::string> rest;

  bool has(const std::string& name) const { return given.contains(name); }
  /// True if the command line itself gives the option, and no file.
  bool is_on_command_line(const std::string& name) const { return has(name) && given.at(name).said == "--" + name; }
  /// The given value, the first of several; empty if none was given.
  std::string text(const std::string& name) const { return has(name) ? given.at(name).values.front() : ""; }
  std::vector<std::string> texts(const std::string& name) const {
    return has(name) ? given.at(name).values : std::vector<std::string>{};
  }
  bool flag(const std::string& name) const { return text(name) == "true"; }

  /// The option's value, or its default, as legal_value() makes it. Throws UsageError for one that is not legal.
  std::string value(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;  ///< value() of kinds integer and bytes
  double real(const std::string& name) const;           ///< value() as a number
};

/// Reads --name VALUE, --name=VALUE, switches and operands; no name is guessed. Values of the command's own options are checked,
/// unless --help is among them. Throws UsageError for an option that the command does not have, one without its value, one that
/// is given twice and may not be, and a word that is none of these. Options that are none of a run's are left to `rest` where the
/// command takes those of parts.
CommandLine read_command_line(const Command& command, std::vector<std::string> arguments);

/// The words of the line without the command's own options, and without those that are `left_out`.
std::vector<std::string> words_of_others(const CommandLine& line, const std::set<std::string>& left_out = {});

/// `consist NAME ARGUMENTS`: reads the line, and prints the help or runs the command. Returns the exit status.
int run_command(const Command& command, std::vector<std::string> arguments);

}  // namespace consist
