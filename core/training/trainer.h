// The training loop.
#pragma once

#include <cstdint>
#include <string>

#include "consist/dataset.h"
#include "consist/export.h"
#include "consist/schedule.h"
#include "core/compile/compile.h"
#include "core/record/step_report.h"
#include "core/state/training_state.h"

namespace consist {

struct TrainerSettings {
  std::int64_t first_step = 0;  ///< steps done before this run (resume)
  std::int64_t steps = 1;       ///< total, the earlier ones included
  std::int64_t micro_batch = 1;
  std::int64_t sequence = 0;
  int accumulation = 1;
  double learning_rate = 3e-4;           ///< the peak
  const Schedule* schedule = nullptr;    ///< outlives the training; absent: the peak at every step
  OptimizerUses optimizers = nullptr;    ///< those of the program; outlive the training
  std::int64_t evaluate_every = 0;       ///< steps; 0: never
  std::int64_t evaluate_sequences = 0;   ///< so many over all ranks, as far as the dataset has them; 0: all that it has
  std::int64_t checkpoint_every = 0;     ///< steps; 0: never
  std::int64_t snapshot_every = 0;       ///< steps; 0: never
  std::int64_t sample_every = 0;         ///< steps; 0: never
  bool checkpoint_each_epoch = false;    ///< after each step that ends a pass through the dataset
  std::string dataset;                   ///< the plugin's name, for messages
};

enum class TrainerResult {
  finished,
  stopped,
  paused,  ///< all that was trained is in a snapshot, from which other ranks go on
};

/// Called by every rank: the loss of the weights that `state` has, over the sequences of the evaluation part that `settings` asks
/// for, by its program for evaluations. Throws as train().
CONSIST_API EvaluationReport evaluate(TrainingState& state, const Dataset& dataset, const Layout& layout, int rank,
                                      const TrainerSettings& settings, TrainerEvents& events);

/// Trains from settings.first_step on. Throws what a launch threw (PeerError where another rank failed).
CONSIST_API TrainerResult train(TrainingState& state, const Dataset& dataset, const Layout& layout, int rank,
                                const TrainerSettings& settings, TrainerEvents& events);

}  // namespace consist
