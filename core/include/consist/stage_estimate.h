// Estimates of a step whose layers lie in stages, for searches: by arithmetic, before anything is compiled.
#pragma once

#include <vector>

#include "consist/export.h"

namespace consist {

/// Cost of a contiguous part of a model on one rank, per micro-batch, with the communication that compute waits for.
struct LayerWork {
  double forward = 0, backward = 0;  ///< seconds
  double weight_gradients = 0;       ///< seconds of `backward` that nothing but the optimizer waits for
  double first_forward = 0;          ///< seconds more in the first micro-batch of a step, while parameters are gathered
  double last_backward = 0;          ///< seconds more in the last one, while gradients are reduced
  double finish = 0;       ///< seconds of a step behind its last micro-batch: reductions that compute waits for, the update
  double kept_bytes = 0;   ///< from forward to backward
  double state_bytes = 0;  ///< parameters, gradients and states of the optimizer
};

/// A step whose layers are to be divided over the ranks of an axis.
struct StageRequest {
  std::vector<LayerWork> parts;  ///< what is in front of the layers, each layer, what is behind them
  bool has_collectives = false;  ///< layers wait for collectives of other axes, beside which gradients of weights are made
  double message_seconds = 0;    ///< of what a layer hands on for one micro-batch, to the next rank of the axis
  int ranks = 1;                 ///< of the axis
  int micro_batches = 1;         ///< of a step
};
struct StageEstimate {
  double seconds = 0;  ///< of the step
  double bytes = 0;    ///< kept and states, of the rank that has the most
};

/// A strategy (ParallelStrategy) whose axis makes stages may be this, too: `consist tune` then ranks its configurations without
/// compiling each. THREADS: one.
class CONSIST_API StageEstimator {
 public:
  virtual ~StageEstimator();
  /// In well under a millisecond; close to what the compiled programs take, not equal. ERRORS: UsageError for what partition() would
  /// refuse.
  virtual StageEstimate estimate_stages(const StageRequest& request) const = 0;
};

}  // namespace consist
