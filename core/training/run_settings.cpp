#include "core/training/run_settings.h"

namespace consist {

TrainerSettings trainer_settings(const RunConfig& config, const Parts& parts, std::int64_t first_step, std::int64_t sample_every,
                                 std::int64_t snapshot_every) {
  // A folder without an interval: one checkpoint at the end.
  const std::int64_t checkpoint_every = config.checkpoint.empty() || config.checkpoint_each_epoch ? config.checkpoint_every
                                        : config.checkpoint_every > 0                             ? config.checkpoint_every
                                                                                                  : config.steps;
  return {.first_step = first_step,
          .steps = config.steps,
          .micro_batch = config.batch,
          .sequence = config.sequence,
          .accumulation = config.accumulation,
          .learning_rate = config.learning_rate,
          .schedule = parts.schedule.get(),
          .optimizers = parts.optimizers(config),
          .evaluate_every = config.evaluate_every,
          .evaluate_sequences = config.evaluate_sequences,
          .checkpoint_every = checkpoint_every,
          .snapshot_every = snapshot_every,
          .sample_every = sample_every,
          .checkpoint_each_epoch = config.checkpoint_each_epoch,
          .dataset = config.dataset};
}

}  // namespace consist
