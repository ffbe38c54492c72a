// Options of commands that predict with failures: --mtbf, --restart, --storage.
#pragma once

#include <optional>

#include "launch/cli/command_line.h"
#include "launch/predict/goodput.h"

namespace consist::launch {

inline constexpr RunOption mtbf_option =
    valued("mtbf", OptionKind::real, "", "HOURS",
           "mean time between failures of one device, its share of host and network included: adds the tokens of a day, and the "
           "best interval of checkpoints",
           "0..");
inline constexpr RunOption restart_option =
    valued("restart", OptionKind::real, "300", "SECONDS", "from a failure to the first step again, for --mtbf", "0..");
inline constexpr RunOption storage_option =
    valued("storage", OptionKind::bytes, "10G", "BYTES", "bytes a second that all ranks together write to storage, for --mtbf");

/// With --mtbf. Throws UsageError for the others without it, and for what cannot be.
std::optional<FailureModel> failure_model_of(const CommandLine& line);

}  // namespace consist::launch
