// A step of a model with many layers, from two steps with few.
#pragma once

#include <vector>

#include "consist/stage_estimate.h"
#include "core/cost/simulator.h"
#include "core/plan/plan.h"

namespace consist::launch {

/// A micro-batch on one rank, and the end of a step, as if there were no stages: seconds and bytes grow by the same for each
/// layer.
struct StepModel {
  LayerWork before, layer, after;
  int layers = 0;
  int micro_batches = 1;           ///< of the steps that were compiled
  double seconds = 0;              ///< of such a step with all layers
  double micro_batch_seconds = 0;  ///< one micro-batch more
  double update_bytes = 0;         ///< most memory beside the optimizer's update, all layers on one rank
  double other_bytes = 0;          ///< most memory before that, without `kept_bytes` and `state_bytes`
  double message_bytes = 0;        ///< of what a layer hands on to the next one
  bool has_collectives = false;    ///< within the layers of a micro-batch
  WorkSeconds micro_batch_work{}, update_work{};

  double bytes() const;        ///< of a step without stages
  double state_bytes() const;  ///< of all layers on one rank: what no recomputation lessens
};

/// Plans and simulates two reduced steps (core/plan/reduced_step.h). `plan` is laid out. Throws what compiling throws, and UsageError
/// for a model without layers that are alike.
StepModel model_of(const Plan& plan, int micro_batches);

}  // namespace consist::launch
