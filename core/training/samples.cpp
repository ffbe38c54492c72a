#include "core/training/samples.h"

#include <algorithm>

#include "consist/error.h"
#include "core/training/generator.h"
#include "core/training/sampler.h"

namespace consist {

NamedPrograms sample_programs(const Plan& plan, const Program& step, const SampleRequest& request, int rank) {
  if (step.stage_axis >= 0)
    throw UsageError(
        "--sample-every does not go with a pipeline, of which each rank has a part of the model; use consist generate on its "
        "checkpoints");
  if (step.output(StepOutput::Kind::overflow) != no_tensor) {
    throw UsageError(
        "--sample-every does not go with experts that are sharded over ranks (ep, tp-sp), whose capacity may not suffice; use "
        "consist generate on its checkpoints");
  }
  const std::int64_t needed = static_cast<std::int64_t>(request.prompt.size()) + request.tokens,
                     positions = plan.parts().architecture->sizes().max_sequence;
  if (positions > 0 && needed > positions) {
    throw UsageError("--sample-prompt has " + std::to_string(request.prompt.size()) + " tokens and --sample-tokens is " +
                     std::to_string(request.tokens) + ", together more than the model's " + std::to_string(positions) +
                     " positions");
  }
  return text_programs(plan, room_for(needed, positions), rank);
}

std::string sample(TrainingState& state, const SampleRequest& request) {
  Generator generator(state);
  Sampler sampler({.temperature = 0});
  std::vector<std::int32_t> tokens;
  std::span<const float> logits = generator.read(request.prompt);
  while (true) {
    const std::int32_t token = sampler.next(logits);
    if (std::find(request.ends.begin(), request.ends.end(), token) != request.ends.end()) break;
    tokens.push_back(token);
    if (static_cast<std::int64_t>(tokens.size()) == request.tokens) break;
    logits = generator.read({&token, 1});
  }
  return request.text(tokens);
}

}  // namespace consist
