// --deepspeed-config FILE: a DeepSpeed JSON as it stands, read into a run's configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/config/run_config.h"

namespace consist {

/// The command line and defaults that the file is checked against.
struct DeepspeedContext {
  /// Whether the option (without "--") was given on the command line: such values must not contradict the file's.
  std::function<bool(const std::string& option)> given;
  /// The model's hidden size, from which Hugging Face's integration resolves "auto" sizes; asked for only where it is needed.
  std::function<std::int64_t()> hidden;
  /// "zero_optimization.sub_group_size=1e9": values that stand in place of the file's (--deepspeed-set). As in JSON; what is no
  /// JSON is a string.
  std::vector<std::string> replacements;
};

/// Sets in `config` what the file states: strategy (stage 0 ddp, 1 and 2 zero2, 3 zero3-offload) with its options, precision,
/// batch, clipping, optimizer and learning rate. Adds to config.notes one line for every key: what became of it, how "auto" was
/// resolved, or why it has no effect here. Returns the options that the file has stated. Throws UsageError for keys that ask for
/// something that is not done here, that are unknown, or that contradict the command line; SystemError or DataError for a file
/// that cannot be read or is no JSON.
std::set<std::string> apply_deepspeed_config(const std::string& path, const DeepspeedContext& context, RunConfig& config);

}  // namespace consist
