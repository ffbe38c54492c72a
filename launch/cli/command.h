// A command of `consist`, as data: its help, its parser, completion, its man page and checks are functions over this row.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/option_table.h"

namespace consist {

struct CommandLine;

/// An option of a run that a command takes, or that its help explains.
struct TakenOption {
  std::string_view name;
  const char* help = "";  ///< in this command's words, for its help; empty: it is named as one of train's
};

/// The options that a command takes beside its own.
enum class Takes {
  nothing,
  parts,  ///< those of parts
  named,  ///< those of a run that `taken` names, and those of parts
  all,    ///< all those of a run and of parts
  words,  ///< it reads its words itself, and is not for people
};

/// Texts are lines of at most 120 columns, each with its end.
struct Command {
  std::string_view name;     ///< "train", "bench collectives"
  const char* summary = "";  ///< for `consist --help`
  const char* usage = "";    ///< behind the name: "ARCHIVE... [--json]"
  const char* about = "";    ///< sentences in front of the options
  std::span<const RunOption> own = {};
  const char* notes = "";    ///< sentences behind the options
  const char* example = "";  ///< a command line
  /// The kind of a word without dashes: "FILE", "FOLDER", "PLUGIN" (a name), "COMMAND", or alternatives "bash|zsh|fish". Empty:
  /// there is none. "-- COMMAND": all behind the dashes.
  std::string_view operand = "";
  Takes takes = Takes::nothing;
  std::span<const TakenOption> taken = {};
  bool is_of_runs = false;                        ///< its help and its page state all options of a run
  int (*run)(const CommandLine& line) = nullptr;  ///< returns the exit status; consist::Error leaves through main

  bool takes_run_options() const noexcept { return takes == Takes::all || takes == Takes::named; }
  bool takes_parts() const noexcept { return takes_run_options() || takes == Takes::parts; }
  /// True if `name` is an option of a run that the command takes.
  bool takes_of_run(std::string_view name) const noexcept;
  /// The option of that name: its own, --help, or one of a run that it takes. Null if there is none.
  const RunOption* find(std::string_view name) const noexcept;
  bool is_hidden() const noexcept { return takes == Takes::words; }
};

/// An option of every command.
inline constexpr RunOption help_option{.spec = {"help", OptionKind::flag, "false", "this text"}};

using CommandTable = std::span<const Command* const>;

/// By name; null if there is none.
const Command* find_command(CommandTable table, std::string_view name) noexcept;

/// Returns what --help prints: usage, sentences, options and examples.
std::string help_of(const Command& command);

/// A row of an own option: `value` is what the help calls it, "FILE".
constexpr RunOption valued(const char* name, OptionKind kind, const char* fallback, const char* value, const char* help,
                           const char* legal = "") {
  return {.spec = {name, kind, fallback, help, legal}, .value = value};
}
constexpr RunOption a_switch(const char* name, const char* help) {
  return {.spec = {name, OptionKind::flag, "false", help}};
}
constexpr RunOption repeated(RunOption row) {
  row.repeats = true;
  return row;
}
/// An option whose values may follow each other: --add A B.
constexpr RunOption several(RunOption row) {
  row.repeats = row.takes_several = true;
  return row;
}
/// An option that has a short name, too: -o.
constexpr RunOption with_letter(char letter, RunOption row) {
  row.letter = letter;
  return row;
}

}  // namespace consist
