// Do all ranks of a job train the same thing? Asked before the first step.
#pragma once

#include <span>
#include <string>

#include "consist/export.h"
#include "consist/job.h"
#include "consist/program.h"
#include "core/config/run_config.h"

namespace consist {

/// Collective over the job: throws the same ProgramError on every rank if the collectives of the ranks' programs do not come
/// together: another order, one more, other tensors or sizes. It names two ranks and their first instructions that differ, or
/// where the ranks block each other. `programs[i]` is the same kind of program on all ranks (the step, the evaluation); `topic`,
/// for the message and the job's messages, is used once. Planned programs are also checked for waits that form a cycle.
///
/// Costs each rank one hash of 64 digits. Streams of collectives travel only where hashes differ: one per pipeline stage.
CONSIST_API void agree_on_programs(Job& job, const std::string& topic, std::span<const Program* const> programs);

/// Collective over the job: throws the same UsageError on every rank if ranks were started with options that differ and that
/// decide what is trained, or which steps the ranks take together.
CONSIST_API void agree_on_options(Job& job, const RunConfig& config);

}  // namespace consist
