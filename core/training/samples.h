// Text that a run writes between steps, so that people see what its model has learned (--sample-every).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/state/training_state.h"

namespace consist {

/// A text to write after every so many steps: the most probable tokens behind a prompt.
struct SampleRequest {
  std::int64_t every = 0;   ///< steps; 0: never
  std::int64_t tokens = 0;  ///< at most
  std::vector<std::int32_t> prompt, ends;
  std::function<std::string(std::span<const std::int32_t>)> text;  ///< of tokens; from the trainer's thread
};

/// The programs for it. Throws UsageError for a layout that does not allow it, and where prompt and tokens are more than the
/// model's positions.
NamedPrograms sample_programs(const Plan& plan, const Program& step, const SampleRequest& request, int rank);

/// Called by every rank: the text behind the prompt, from the weights as they are. Weights and states stay as they are.
std::string sample(TrainingState& state, const SampleRequest& request);

}  // namespace consist
