// Times of the instructions of real training steps, for `consist calibrate`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/device.h"
#include "consist/job.h"
#include "consist/transport.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"

namespace consist::launch {

/// A training step that a machine is measured with: some layers of a model.
struct CalibrationStep {
  std::string model;  ///< a preset
  int layers = 1;
  std::int64_t batch = 1, sequence = 0;  ///< of a rank
  std::string precision;                 ///< a plugin
  std::string strategy;                  ///< over all ranks; empty: each rank trains for itself
};
/// "llama-3-8b, 2 layers, 4 x 4096 tokens, bf16", with a strategy also ", ddp".
std::string text_of(const CalibrationStep& step);

/// One instruction of a step's compute queue.
struct OpSample {
  std::string op;
  DType dtype = DType::f32;  ///< of its first operand
  double flops = 0, bytes = 0;
  double seconds = 0;  ///< median of the steps, mean over ranks
};

/// Used on every rank of the job. All ranks run the same step at the same time, each for itself, as they do in training: on one
/// machine they share memory, power and the processor.
class StepSampler {
 public:
  /// `device` is open. `transport` may be null if no step has a strategy. `seconds`: how long each step is repeated, about.
  StepSampler(PluginHost& host, std::shared_ptr<Device> device, std::shared_ptr<Transport> transport, Job& job, RunConfig config,
              double seconds);

  /// Collective over the job. The step's instructions; the same on every rank. Throws what parts and plans throw.
  std::vector<OpSample> sample(const CalibrationStep& step);
  /// Collective over the job. Seconds of the step without measuring its parts: median over repeats, mean over ranks. Planned for
  /// `machine`, the same on all ranks.
  double step_seconds(const CalibrationStep& step, const std::shared_ptr<const Machine>& machine);
  /// Seconds of the step by `machine`. Not collective.
  double expected_seconds(const CalibrationStep& step, const std::shared_ptr<const Machine>& machine) const;
  /// Whether the step's plan fits the device.
  bool fits(const CalibrationStep& step) const;

 private:
  struct Made;
  Made make(const CalibrationStep& step, std::shared_ptr<const Machine> machine) const;
  /// Every rank's numbers, added up element by element and divided by the number of ranks.
  std::vector<double> mean_over_ranks(const std::vector<double>& own);
  struct Measured;
  Measured run(const CalibrationStep& step, std::shared_ptr<const Machine> machine, bool profile);

  PluginHost& host_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<Transport> transport_;
  Job& job_;
  const RunConfig config_;
  const double seconds_;
  int meetings_ = 0;
};

/// Means of the samples of one op, dtype and cost.
std::vector<DeviceRates::OpTimes> op_times(const std::vector<OpSample>& samples);

}  // namespace consist::launch
