// Parts of the time of a row's step, the instructions behind each, the order in which they ran, and the memory.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "launch/residual/step_parts.h"
#include "launch/view/report/run_data.h"

namespace consist::launch {

/// `step`: of a row (step_parts()). Parts and instructions are means over the runs that count, the timeline and the memory are of
/// the first. Parts sum to the row's step as the table has it.
///
/// {"source": "measured" | "simulated" | "none", "reason", "measured_steps", "step_seconds", "parts", "items", "classes",
/// "simulation"}
nlohmann::ordered_json time_data(const StepParts& step, SharedTexts& texts, const RunDetail& detail);

}  // namespace consist::launch
