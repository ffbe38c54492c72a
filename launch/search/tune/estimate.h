// Estimate of a configuration for a search: the seconds of a step and its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/cost/power.h"
#include "core/plan/plan.h"
#include "launch/predict/prediction.h"

namespace consist::launch {

/// Time, energy and memory of a step that was planned and simulated, whole or with fewer micro-batches.
struct Estimate {
  double seconds = 0;      ///< 0: it does not fit and was not simulated
  double joules = 0;       ///< of all ranks; 0: no power is known
  std::int64_t bytes = 0;  ///< of the rank that needs the most
  bool fits = false;
  bool states_fit = true;  ///< else it does not fit however few activations are kept
  bool whole = true;
  std::shared_ptr<const Prediction> prediction = {};  ///< of a whole step that fits
};

/// Micro-batches of a step from which the time of a longer one follows: those at its beginning and end, and one between them; of
/// a pipeline some for each stage.
int fewest_micro_batches(int stages);

/// Unless `whole`, a step that is longer is planned with fewest_micro_batches(). Each one more takes the time and energy of those
/// in the middle, and the memory of its tokens. Throws as Plan::ranks().
Estimate estimate(const Plan& plan, int stages, bool whole, const Power& power = {});

/// The same programs on other machines: time and energy of a step over those on the plan's own, by machine.
struct Ratio {
  double seconds = 1, joules = 1;  ///< of joules: 1 where no power is known
};
/// Compiles once, with fewest_micro_batches() at most. Throws as Plan::ranks().
std::vector<Ratio> ratios_on(const Plan& plan, int stages, std::span<const std::shared_ptr<const Machine>> machines,
                             const Power& power = {});

}  // namespace consist::launch
