// Estimates of a step whose layers lie in stages, for searches: by arithmetic, before anything is compiled.
#pragma once

#include <vector>

#include "consist/export.h"

namespace consist {

/// Cost of a contiguous part of a model on one rank, per micro-batch, with the communication that compute waits for.
struct LayerWork {
  double forward = 0, backward = 0;  ///< seconds
  double weight_gradients = 0;       ///< seconds of `backward` that only the optimizer waits for
  double first_forward = 0;          ///< seconds more in the first micro-batch of a step, while parameters are gathered
  double last_backward = 0;          ///< seconds more in the last one, while gradients are reduced
  double finish = 0;       ///< seconds of a step behind its last micro-batch: reductions that compute waits for, the update
  double kept_bytes = 0;   ///< from forward to backward
  double state_bytes = 0;  ///< parameters, gradients and states of the optimizer
};

/// A step whose layers are distributed over the ranks of an axis.
struct StageRequest {
  std::vector<LayerWork> parts;  ///< the part before the layers, each layer, the part after them
  bool has_collectives = false;  ///< layers wait for collectives of other axes, beside which gradients of weights are made
  double message_seconds = 0;    ///< of the activations of one micro-batch, sent to the next rank of the axis
  int ranks = 1;                 ///< of the axis
  int micro_batches = 1;         ///< of a step
};
struct StageEstimate {
  double seconds = 0;  ///< of the step
  double bytes = 0;    ///< kept and states, of the rank that has the most
};

/// Optional second interface of a strategy (ParallelStrategy) whose axis makes stages: with it `consist tune` ranks
/// configurations without compiling each. THREADS: one.
class CONSIST_API StageEstimator {
 public:
  virtual ~StageEstimator();
  /// Estimates a step in well under a millisecond; close to the figures of the compiled programs, not equal. ERRORS: UsageError
  /// for a request that partition() would refuse.
  virtual StageEstimate estimate_stages(const StageRequest& request) const = 0;
};

}  // namespace consist
