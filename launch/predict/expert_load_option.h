// The option --expert-load of commands that predict.
#pragma once

#include "core/plan/expert_load.h"
#include "launch/cli/command_line.h"

namespace consist::launch {

inline constexpr RunOption expert_load_option = valued(
    "expert-load", OptionKind::text, "balanced", "LOAD",
    "shares of the tokens that experts get: balanced, zipf:S (1/rank^S), FILE.json (a list), FILE.h5 (as a run recorded); the "
    "fullest rank of a group counts");

}  // namespace consist::launch
