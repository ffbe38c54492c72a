// A run that trains nothing: the loss of a trained model on a dataset, in any layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/observer.h"
#include "core/job/job.h"
#include "core/plan/plan.h"

namespace consist {

struct EvaluationResult {
  std::string weights;         ///< what was evaluated, for people: "step 40 of runs/a"
  std::int64_t step = 0;       ///< after which the weights were saved; 0: no checkpoint says
  std::string dataset;         ///< what it was evaluated on, for people
  double loss = 0;             ///< mean over `tokens`
  std::string loss_unit = {};  ///< Loss::unit()
  std::int64_t tokens = 0;     ///< targets that counted
  std::int64_t sequences = 0;  ///< over all ranks
  double seconds = 0;
  std::string device;
  std::vector<OwnMetricValue> metrics = {};  ///< numbers of the model's or the loss's own
  std::optional<double> perplexity;          ///< e to the loss, where that is the next token's cross-entropy
};

/// REQUIRES: the plan has an evaluation (--evaluate-every). Called by every rank of the job, whose last act it is (Job::leave()).
/// Weights are those of load_trained_weights();
/// --evaluate-sequences says how many sequences of the dataset's evaluation part are read, 0 all of them. The result is the same
/// on all ranks. Throws UsageError for a dataset without an evaluation part, Error if the loss is not finite, and as
/// run_training(). Rank 0 writes the archive that the configuration names (docs/archive.md); that of other ranks names none.
CONSIST_API EvaluationResult run_evaluation(const Plan& plan, JoinedJob& job);

}  // namespace consist
