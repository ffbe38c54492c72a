// What a run says of itself before its first step: to people, and in its archive.
#pragma once

#include <string>

#include "consist/device.h"
#include "consist/job.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "core/runtime/communicators.h"
#include "core/runtime/parts.h"
#include "core/runtime/program_summary.h"
#include "core/runtime/training_state.h"

namespace consist {

/// The archive's /environment: build, host, device, plugins with their versions.
std::string environment_json(const Job& job, const Device& device, PluginHost& host);
/// The archive's /topology: the mesh's axes, each with its strategy, its transport and the path that this was proven to take.
std::string topology_json(const RunConfig& config, const Layout& layout, const Communicators& communicators);
/// The lines before the first step: model, layout and paths, precision, device, batch, planned memory, notes of the
/// configuration.
std::string banner(const RunConfig& config, const Parts& parts, const Layout& layout, const TrainingState& state,
                   const Communicators& communicators, const ProgramSummary& summary);

}  // namespace consist
