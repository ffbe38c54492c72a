// The settings with which a run's trainer goes through its steps.
#pragma once

#include <cstdint>

#include "core/config/run_config.h"
#include "core/plan/parts.h"
#include "core/training/trainer.h"

namespace consist {

/// Those of `config` behind `first_step` steps. `sample_every`, `snapshot_every`: steps between samples of text and between
/// snapshots in memory; 0: none.
TrainerSettings trainer_settings(const RunConfig& config, const Parts& parts, std::int64_t first_step, std::int64_t sample_every,
                                 std::int64_t snapshot_every);

}  // namespace consist
