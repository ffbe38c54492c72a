// Description of a run before its first step: printed, and written to its archive.
#pragma once

#include <span>
#include <string>

#include "consist/device.h"
#include "consist/job.h"
#include "core/connect/communicators.h"
#include "core/lower/program_summary.h"
#include "core/plan/machine_choice.h"
#include "core/plan/plan.h"
#include "core/plugin/host.h"
#include "core/record/job_memory.h"

namespace consist {

/// The archive's /environment: build, host, system, device, versions of drivers and libraries, plugins with theirs, and the
/// machine that the run is planned for.
std::string environment_json(const Job& job, const Device& device, const MachineChoice& machine,
                             const Communicators& communicators, PluginHost& host);
/// The archive's /topology: the mesh's axes, each with its strategy, its transport, what --transport asked for, and the path that
/// the transport was proven to take.
std::string topology_json(const Plan& plan, const Communicators& communicators);
/// The archive's /program: rank 0's program, and in "largest" the memory of the ranks that need the most.
CONSIST_API std::string program_json(const ProgramSummary& summary, const PlannedMemory& planned);
/// The lines before the first step: model, layout and paths, transports that --transport left open, precision, device, batch,
/// planned memory, notes of the configuration.
std::string banner(const Plan& plan, const Dataset& dataset, const PlannedMemory& planned, const Communicators& communicators,
                   const ProgramSummary& summary);

/// Warning that --offload-activations has no effect on these ranks: their stages have no activation that can be offloaded.
/// REQUIRES: `none` is not empty.
CONSIST_API std::string nothing_moves_text(const OffloadRequest& request, std::span<const int> none, int ranks);

}  // namespace consist
