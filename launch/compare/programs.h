// Finds the rows of a comparison that run the same program.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/plan/plan.h"

namespace consist::launch {

/// All of a checked configuration that says what is trained and how, but the names and options of strategies and transports and
/// the places of files: configurations that differ in this text cannot be the same program.
std::string text_without_layout(const RunConfig& config);

/// The result of strategies and transports for a checked configuration, as text: the mesh, the programs of all ranks that differ,
/// and the transports of its axes, with their options. Configurations with equal texts here and in text_without_layout()
/// do the same work. Throws what making and compiling the parts throws.
std::string text_of_programs(const Plan& plan);

/// A row that can be run.
struct CheckedRow {
  std::size_t row = 0;
  Plan plan;
};

/// For each of `count` rows the first row that runs the same program; itself for those that are not among `checked`. Compiles
/// only where all else is equal.
std::vector<std::size_t> first_of_equals(std::size_t count, const std::vector<CheckedRow>& checked);

}  // namespace consist::launch
