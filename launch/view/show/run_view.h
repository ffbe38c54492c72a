// A run as its archive shows it, at whatever moment: for people (screen.h), for programs (view_json.h), and again and again while
// it goes on (consist watch).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/archive/reader.h"
#include "core/record/metrics.h"
#include "launch/predict/costs.h"

namespace consist::launch {

/// The contents of an archive. Objects are empty where it does not have them (yet).
struct RunView {
  std::string path;
  std::string status, reason;  ///< as ArchiveReader has them
  nlohmann::json config, environment, topology, program, result;
  nlohmann::json evaluation;  ///< of consist evaluate; empty: it is a run that trains
  std::vector<double> step, loss, seconds, data_seconds, tokens;  ///< columns of /steps
  std::string loss_unit;                                          ///< ArchiveReader::loss_unit()
  std::vector<double> power;                                      ///< W, of rank 0's device; empty: it has no such sensor
  std::vector<OwnMetricValue> metrics;  ///< of the last step: what the model or the loss reports of its own
  std::vector<ArchivedEvaluation> evaluations;
  std::vector<ArchiveEvent> events;
  std::string residual;  ///< predicted beside measured in a line; empty: not asked for, or nothing can be said
  double written = 0;  ///< when the file was last written, seconds since the epoch

  bool running() const { return status == "running"; }
  std::int64_t steps() const;  ///< that the run is to do, 0: not known
  std::int64_t done() const;   ///< the last step that was done, 0: none
};

/// Throws as ArchiveReader does.
RunView read_run(const std::string& path);

/// The rate of a run, as docs/metrics.md defines it.
struct Speed {
  Steady steady;                 ///< no steps: nothing is known
  double tokens_per_second = 0;  ///< of all ranks, median
  double low = 0, high = 0;      ///< 10th and 90th percentile
  double data_share = 0;         ///< of the time of steps and waits for data, the waits'
};
Speed speed_of(const RunView& run);

/// Seconds that the steps and evaluations that are left take at the pace of the last hundred; nothing of a run that has ended, or
/// has no step yet. Checkpoints and the export come on top.
std::optional<double> seconds_left(const RunView& run);

/// `price`: that of the archive's /config where it is empty.
Costs costs_of(const RunView& run, const std::string& price = "");

/// The text at a path such as "/planned_for/machine" of an object; empty if it has none. Numbers: NaN.
std::string text_at(const nlohmann::json& object, const std::string& path);
double number_at(const nlohmann::json& object, const std::string& path);

}  // namespace consist::launch
