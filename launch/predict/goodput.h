// Goodput: the share of time that trains when devices fail and checkpoints are written (Young, 1974; Daly, 2006, "A higher order
// estimate of the optimum checkpoint interval for restart dumps").
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "launch/predict/prediction.h"

namespace consist::launch {

struct FailureModel {
  double device_hours = 0;     ///< mean time between failures of one device; its share of host and network included. > 0
  double restart_seconds = 0;  ///< from a failure to the first step behind the checkpoint that is loaded
  double storage_rate = 0;     ///< bytes/s that all ranks together write. > 0
};

/// One way of keeping checkpoints.
struct CheckpointInterval {
  double seconds = 0;      ///< of training between two of them
  double blocked = 0;      ///< seconds that one stops training for
  double goodput = 0;      ///< share of time that trains, 0..1
  std::int64_t steps = 0;  ///< `seconds` in steps, at least 1
};

struct Goodput {
  FailureModel model;
  int ranks = 1;
  double failure_seconds = 0;     ///< between failures of the job
  std::int64_t bytes = 0;         ///< of a checkpoint
  CheckpointInterval best;        ///< the best interval for checkpoints that training waits for
  std::optional<CheckpointInterval> asked;  ///< of --checkpoint-every
  std::optional<CheckpointInterval>
      snapshot;               ///< a copy in the host's memory, written beside training; if the machine's file has a host link
  double tokens_per_day = 0;  ///< with `best`
  double tokens_per_day_without_failures = 0;
};

/// The share of time that trains, if failures come at random (exponentially): the mean time of an interval of `seconds` of
/// training, its checkpoint, and what failures repeat.
double goodput_of(double seconds, double blocked, double failure_seconds, double restart_seconds);

/// The interval of the highest goodput, not shorter than `least` seconds.
CheckpointInterval best_interval(double blocked, double failure_seconds, double restart_seconds, double step_seconds,
                                 double least = 0);

/// Takes the configuration and the machine that were predicted.
Goodput goodput_of(const Prediction& prediction, const RunConfig& config, const Machine& machine, const FailureModel& model);

/// For people, lines that follow those of a prediction.
std::string text_of(const Goodput& goodput);
nlohmann::ordered_json json_of(const Goodput& goodput);

}  // namespace consist::launch
