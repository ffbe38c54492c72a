// Text that a run prints at its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/config/run_config.h"
#include "core/job/rank_board.h"
#include "core/plan/machine_choice.h"
#include "core/plan/parts.h"
#include "core/plan/plan.h"
#include "core/plugin/host.h"
#include "core/training/run_events.h"

namespace consist {

/// The steady state's rates and the memory, on standard output; nothing before there is a steady state.
void print_result(const RunEvents& events);

/// States the cost of the run by --price, from the start of its process to its end, `seconds` later; empty without a price.
/// `device`: the device's name.
std::string cost_text(const RunConfig& config, const MachineChoice& machine, const std::string& device, double seconds);

/// A line that says before the first step that the trained weights will be dropped; empty for a run that keeps them.
std::string unkept_text(const RunConfig& config);

/// Prints what a run has written and where, a line each, and if its weights are lost; on standard output. `step`: its last one.
/// `exported`: whether it came to its export.
void print_written(const RunConfig& config, PluginHost& host, std::int64_t step, bool exported);

/// States that ranks were replaced and where the run goes on: after `step` steps, taken from `from`. `lost`: seconds since that
/// step was done first, if that is known.
std::string restart_text(const RestartReason& reason, std::int64_t step, const std::string& from, std::optional<double> lost);
/// The same as JSON, for the archive.
std::string restart_event(const RestartReason& reason, std::int64_t step, const std::string& from, std::optional<double> lost);

/// States which nodes were left out of the job or came to it before its ranks went on after `step` steps.
std::string nodes_text(const NodeChange& change, std::int64_t step);
/// The same as JSON, for the archive.
std::string nodes_event(const NodeChange& change, std::int64_t step);

/// Lists what the steps up to `step` have read of each part of a mixture; empty without a mixture.
std::string text_of_parts(const RunData& data, const Plan& plan, std::int64_t step);

/// Prints why a run ended after `step` rather than its last step, on standard output; nothing without a reason.
void print_early_end(const RunConfig& config, std::int64_t step, const std::string& reason);

/// Prints what a run that was asked to end after `step` has saved, and how to go on; on standard error.
void print_stop(const RunConfig& config, std::int64_t step);

}  // namespace consist
