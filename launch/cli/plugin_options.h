// Options of plugins, --<plugin>.<option>, from command lines and files: which there are, and why one is refused.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config_file.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist {

/// The option "ddp.bucket-size"; nothing if no plugin has it. A name is also found in the spelling of another version, which has
/// '_' for '-'.
std::optional<OptionSpec> spec_of_plugin(const std::string& option, PluginHost& host);

/// The name as its plugin spells it; one that no plugin has stays as it is.
std::string spelled(const std::string& option, PluginHost& host);

/// Spells the options of plugins among the words of a command line as their plugins do. `notes` gets a line for each other one.
void spell_words(std::vector<std::string>& words, PluginHost& host, std::vector<std::string>& notes);

/// Throws the UsageError of an option that neither a run nor a plugin has. `where`: "" for the command line, or
/// "run.toml, line 3: ".
[[noreturn]] void refuse_unknown(const std::string& option, const std::string& where, PluginHost& host);

/// Reads `--<plugin>.<option> VALUE` tokens against the option tables of the plugins they name; `notes` as in spell_words().
/// Throws UsageError for anything else.
std::map<std::string, std::map<std::string, std::string>> read_plugin_options(std::vector<std::string> tokens, PluginHost& host,
                                                                              std::vector<std::string>& notes);

/// Takes out of the entries of an archive or a checkpoint those that only the user may give (OptionRole), and says so in `notes`.
/// `given`: whether the user has given an option.
void leave_out_roles(std::vector<ConfigEntry>& entries, const std::function<bool(const std::string&)>& given, PluginHost& host,
                     std::vector<std::string>& notes);

/// Adds the options of plugins that a file gives and `options` has not. Throws UsageError.
void add_entries_of_plugins(const std::vector<ConfigEntry>& entries,
                            std::map<std::string, std::map<std::string, std::string>>& options, PluginHost& host);

}  // namespace consist
