// Setup that runs that train and runs that evaluate share, up to their first program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/connect/communicators.h"
#include "core/plan/plan.h"
#include "core/state/training_state.h"
#include "core/training/adviser.h"

namespace consist {

/// Collective over the job: the plan is for `machine` and its open device, with the transports that rank 0 chooses where
/// --transport leaves them open. Then RunConfig::chosen_transport says which. Throws as agree_on_transports() and
/// Plan::set_target().
void plan_for_device(Plan& plan, Job& job, const Machine& machine);

/// Makes the transports of a plan's run. The plan must outlive it.
TransportMaker transport_maker(Plan& plan);

/// Bytes of device memory that a rank may take.
std::int64_t memory_limit(const RunConfig& config, const Device& device);

/// Throws UsageError for a plan that does not fit, with configurations that would, if there is an adviser.
TrainingState make_state(const Plan& plan, Program step, std::optional<Program> evaluation, const Communicators& communicators,
                         int rank, Adviser* adviser, std::optional<TextPrograms> text = std::nullopt);

}  // namespace consist
