// The files of --from and --deepspeed-config, beside the other options of a run.
#pragma once

#include <set>
#include <string>

#include "launch/cli/options_without_effect.h"
#include "launch/cli/run_options.h"

namespace consist {

/// True if the option's value is "from", which stands for what the file of --from states: in a comparison the file's own row.
bool is_from_file(const ParsedRun& parsed, const std::string& option);

/// Drops options of parts that the run does not have and `of_command_line` does not give: a file stated them, and the command
/// line chose other parts. A note names each part; `file` is how it names the file ("--from").
void drop_stray_options(const std::string& file, const PluginOptions& of_command_line, PluginHost& host, RunConfig& config);

/// Reads the file that is given, if one is, into `config`, and returns the options that it has stated. Throws UsageError if both
/// are given, for replacements without a file, and what the readers throw.
std::set<std::string> read_trainer_file(const ParsedRun& parsed, PluginHost& host, RunConfig& config);

}  // namespace consist
