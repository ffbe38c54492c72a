// A simulated step as a timeline (--trace of explain and predict).
#pragma once

#include <span>
#include <string>

#include "consist/program.h"
#include "core/cost/simulator.h"

namespace consist::launch {

/// For write_trace_file(): every stage is a process.
std::string simulated_events(std::span<const Program* const> stages, const Simulation& simulation);

}  // namespace consist::launch
