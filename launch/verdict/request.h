// The options of a verdict on the command line, of consist verdict and of compare.
#pragma once

#include "launch/cli/command_line.h"
#include "launch/verdict/verdict.h"

namespace consist::launch {

inline constexpr const char* slower_help =
    "B may be slower by so much; sets the exit status: 0 it is not slower by more, 1 it is, 3 cannot be told";
inline constexpr const char* within_help =
    "the margin in which speeds, memories and energies count as the same (2%, or that of --slower if it is less)";

/// Reads --slower, --confidence, --within and, if the command has it, --run-spread. Throws UsageError.
VerdictRequest read_verdict_request(const CommandLine& line);

}  // namespace consist::launch
