// What runs that train and runs that evaluate do alike before their first program runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plan/plan.h"
#include "core/runtime/adviser.h"
#include "core/runtime/communicators.h"
#include "core/runtime/training_state.h"

namespace consist {

/// The transport of each mesh axis.
std::vector<NamedTransport> make_transports(const RunConfig& config, PluginHost& host, const Layout& layout,
                                            const std::string& device_kind);

/// Bytes of device memory that a rank may take.
std::int64_t memory_limit(const RunConfig& config, const Device& device);

/// Throws UsageError for a plan that does not fit, with configurations that would, if there is an adviser.
TrainingState make_state(const Plan& plan, Program step, std::optional<Program> evaluation, const Communicators& communicators,
                         int rank, Adviser* adviser, std::optional<TextPrograms> text = std::nullopt);

}  // namespace consist
