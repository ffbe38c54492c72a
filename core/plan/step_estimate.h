// A step's estimated time as `consist explain` prints it, on a machine that need not be there.
#pragma once

#include <span>
#include <string>

#include "consist/cost.h"
#include "consist/export.h"
#include "consist/program.h"
#include "core/cost/step_time.h"

namespace consist {

/// Tells the user if a plan of `planned_bytes`, those of the rank that needs the most, fits the machine's memory; empty if the
/// size of that memory is not known.
CONSIST_API std::string fit_text(std::int64_t planned_bytes, int rank, const Machine& machine);

/// For people: `time` of these stages (step_time()), and what they send and copy. `tokens` of all ranks per step; `model_flops`
/// per token, as docs/metrics.md counts them.
CONSIST_API std::string estimate_text(std::span<const Program* const> stages, const StepTime& time, const Machine& machine,
                                      int ranks, double tokens, double model_flops);

}  // namespace consist
