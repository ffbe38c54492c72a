// Weights for a run or a program from files: a Hugging Face folder, or a checkpoint of which nothing but the weights is wanted.
#pragma once

#include <cstdint>
#include <string>

#include "core/checkpoint/checkpoint_reader.h"
#include "core/config/run_config.h"
#include "core/job/job.h"
#include "core/plan/parts.h"
#include "core/state/training_state.h"

namespace consist {

/// Throws DataError unless a tensor of a file has the shape that the model needs.
void check_shape(const Shape& found, const Shape& expected, const std::string& file, const std::string& name);

/// Weights as training begins from them: the model's are those of `parts.model_folder` unless there is none or the run is from
/// scratch, those of an adapter and of a loss's frozen models those of their folders. Where there is no folder they are
/// initial values by `config.seed`.
/// `checks_head`: on one rank, whether a tied model's file holds a head of its own. Throws DataError naming the file and the
/// tensor if something is missing, left over, corrupt or of another shape.
void fill_weights(TrainingState& state, const Parts& parts, const RunConfig& config, int threads, bool checks_head);

/// The weights that a checkpoint holds, whatever layout, precision and optimizer trained them. Throws DataError as above.
void load_checkpoint_weights(TrainingState& state, const Checkpoint& checkpoint, int threads);

/// Throws UsageError where no trained weights are named: a preset without a checkpoint, or a folder without weights.
CONSIST_API void require_trained_weights(const RunConfig& config, const Parts& parts);

struct TrainedWeights {
  std::string text;       ///< what they are, for people: "step 40 of runs/a"
  std::int64_t step = 0;  ///< after which they were saved; 0: no checkpoint says
};
/// Called by every rank: the weights of the newest sound checkpoint of `config.checkpoint` if that is a folder's name, else those
/// of the model folder. Throws UsageError where there is neither, and as above.
CONSIST_API TrainedWeights load_trained_weights(TrainingState& state, const RunConfig& config, const Parts& parts, Job& job);

}  // namespace consist
