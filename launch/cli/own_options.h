// The command line of a command that does not train: options of its own, and operands such as files.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/config/option_table.h"

namespace consist {

inline constexpr RunOption help_option{.spec = {"help", OptionKind::flag, "false", "this text"}};

struct OwnOptions {
  std::map<std::string, std::vector<std::string>> given;  ///< checked values (legal_value()), by name
  std::vector<std::string> operands;  ///< words that are neither options nor their values, and all behind "--"

  bool has(const std::string& name) const { return given.contains(name); }
  bool flag(const std::string& name) const { return has(name) && given.at(name).front() == "true"; }
  /// The given value, empty without one: defaults are the table's.
  std::string text(const std::string& name) const { return has(name) ? given.at(name).front() : ""; }
  std::vector<std::string> texts(const std::string& name) const {
    return has(name) ? given.at(name) : std::vector<std::string>{};
  }
};

/// Reads --name VALUE, --name=VALUE and switches. Throws UsageError for an option that the table does not have, one without its
/// value, one that is given twice and may not be, and a value that is not legal. `command` is its name, for messages.
OwnOptions read_own_options(const std::string& command, const std::vector<std::string>& arguments,
                            std::span<const RunOption> table);

}  // namespace consist
