// Checks that a checkpoint is of the run that is to go on from it, and finds its names for the run's values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/schedule.h"
#include "core/checkpoint/checkpoint_state.h"
#include "core/checkpoint/tensor_parts.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "core/state/training_state.h"

namespace consist {

/// The option of datasets of rows that says how the evaluation part is divided off, and its value for what they all did up to
/// version 1 of checkpoints.
inline constexpr const char* split_option = "eval-split";
inline constexpr const char* split_by_sequences = "sequences";
/// Lists the datasets of rows that kept a share of the sequences for evaluation, as --dataset calls them. A checkpoint of version
/// 1 names them in its text `config`. For later versions the list is empty: their options say it.
/// Throws DataError naming `path`.
CONSIST_API std::vector<std::string> datasets_split_by_sequences(const CheckpointState& saved, const std::string& path);

/// Throws UsageError unless the steps of the checkpoint at `path` have read what those of `config` would have read, DataError if
/// it does not say what it read.
void check_same_data(const CheckpointState& saved, const std::string& path, const RunConfig& config,
                     std::int64_t sequences_per_step);

/// Describes what a resumed run's schedule changes: a sentence that names the schedules before and now and the first step that
/// has another rate than it would have had, if there is one or the schedule is another one; else empty. Makes the schedule of the
/// checkpoint, as far as it can be made here.
std::string schedule_change(const CheckpointState& saved, const std::string& path, const RunConfig& config, const Schedule& schedule,
                            PluginHost& host);

/// Throws UsageError if the checkpoint is of a run that trained other parameters (--freeze).
void check_same_trained(const CheckpointState& saved, const std::string& path, const RunConfig& config);

/// Returns the name of a rank's value in a checkpoint.
std::string stored_name(const TrainingState::Value& value, int rank);

/// Throws DataError naming `path` unless the checkpoint has every value of every parameter and nothing else that a run must not
/// lose. `parameters`: for each of the whole model, what a checkpoint holds for it; `has_stages`: the run is a pipeline, whose stages have states of their own.
void check_names(const TensorParts& saved, const std::vector<std::vector<std::string>>& parameters, const TrainingState& state, int ranks,
                 bool has_stages, const std::string& path);

}  // namespace consist
