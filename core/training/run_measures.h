// Measurements that a run takes of itself beside its steps.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "consist/job.h"
#include "core/plan/plan.h"
#include "core/record/bound.h"
#include "core/record/run_result.h"
#include "core/training/run_events.h"

namespace consist {

/// Rate of the model's largest linear on this rank, all ranks measuring at once as they train at once. None for a short run.
Bound bound_of(const Plan& plan);

/// Adds the steady state's rates and the peak that they are held against.
void add_rates(RunResult& result, const Plan& plan, const RunEvents& events);

/// Pipelines only: on rank 0 reports how long the ranks waited and how fast they are, as text and in `profile`. Called by every
/// rank.
std::string measure_bubble(Job& job, const Plan& plan, const Program& program, const RunEvents& events,
                           nlohmann::ordered_json& profile);

}  // namespace consist
