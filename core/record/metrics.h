// The figures that runs are compared by; docs/metrics.md defines them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "consist/export.h"
#include "consist/model.h"
#include "consist/program.h"
#include "core/frozen/freeze.h"

namespace consist {

/// Model FLOPs of forward and backward per token, causal attention counted once.
CONSIST_API double model_flops_per_token(const ModelSizes& sizes, std::int64_t sequence);

/// The same of a run that freezes parameters: without their gradients, and those that nothing needs below the lowest trained one.
CONSIST_API double trained_flops_per_token(const Architecture& architecture, std::int64_t sequence, const FreezeRequest& request);

/// `choices`: for each router a row with how many choices fell on each expert, as wide as the router with the most. The largest
/// of the loads: what an expert got over the mean of its router's. 0 without choices.
CONSIST_API double largest_load(std::span<const float> choices, std::span<const Router> routers);

/// Median and spread of a steady state.
struct Steady {
  std::int64_t first_step = 0;  ///< warm-up ends before it (steps counted from 1)
  std::int64_t steps = 0;
  double median_seconds = 0;
  double low_seconds = 0;   ///< 10th percentile
  double high_seconds = 0;  ///< 90th percentile
};

/// Warm-up of a run of so many steps: up to a fifth of it, at least 1 and at most 10 (of a run of one step, none).
CONSIST_API std::int64_t warmup_steps(std::int64_t steps);
CONSIST_API Steady steady_state(std::span<const double> step_seconds);

}  // namespace consist
