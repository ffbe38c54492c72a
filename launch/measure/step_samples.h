// Times of the instructions of real training steps, for `consist calibrate`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/device.h"
#include "consist/transport.h"
#include "core/config/run_config.h"
#include "core/job/job.h"
#include "core/plan/plan.h"
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
  int depth = 0;       ///< Cost::depth
  double seconds = 0;  ///< median of the steps, mean over ranks
  double scratch = 0;  ///< the kernel's workspace over CostModel::scratch_base()
  std::string
      kind;  ///< of work that draws power alike: "attention of 16 bits", "products of 8 bits"; empty if it is bound by memory
  double planned = 0;  ///< seconds by the machine that the step is planned for
};

/// A step that was run without measuring its parts.
struct TimedStep {
  Program program;                             ///< as it ran on this rank
  double seconds = 0;                          ///< median over repeats, mean over ranks
  std::optional<double> watts = std::nullopt;  ///< that this rank's device drew at the end; nothing where it has no sensor
  std::optional<double> clock = std::nullopt;  ///< ... at which it ran: Hz
};
/// Seconds of the step by `machine`, which its program is not planned for anew. Not collective.
double simulated_seconds(TimedStep& step, std::shared_ptr<const Machine> machine);

/// Used on every rank of the job. All ranks run the same step at the same time, each for itself, as they do in training: on one
/// machine they share memory, power and the processor.
class StepSampler {
 public:
  /// `device` is open. `transport` may be null if no step has a strategy. Steps are planned for `machine`, the same on all ranks.
  /// `seconds`: how long each step is repeated, about.
  StepSampler(PluginHost& host, std::shared_ptr<Device> device, std::shared_ptr<Transport> transport, JoinedJob& job,
              RunConfig config, std::shared_ptr<const Machine> machine, double seconds);

  /// Collective over the job. The step's instructions in order; the same on every rank. Throws what parts and plans throw.
  std::vector<OpSample> sample(const CalibrationStep& step);
  /// Seconds of these instructions on this rank alone.
  const std::vector<double>& own_seconds() const noexcept { return own_seconds_; }
  /// Relative time by which the slowest rank took longer than their mean for all that was sampled.
  double rank_skew() const;
  /// Collective over the job. Throws what parts and plans throw.
  TimedStep time(const CalibrationStep& step);
  /// True if the step's plan fits the device.
  bool fits(const CalibrationStep& step) const;

 private:
  /// `device` may be null: the scratch of kernels is then estimated.
  Plan plan_of(const CalibrationStep& step, std::shared_ptr<Device> device) const;
  /// The job of the step's ranks: this rank alone where it has no strategy.
  std::unique_ptr<JoinedJob> job_of(const CalibrationStep& step);
  /// The sums of all ranks' numbers, element by element.
  std::vector<double> sum_over_ranks(const std::vector<double>& own);
  struct Measured;
  Measured run(const CalibrationStep& step, bool profile);

  PluginHost& host_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<Transport> transport_;
  JoinedJob& job_;
  const RunConfig config_;
  const std::shared_ptr<const Machine> machine_;
  const double seconds_;
  int meetings_ = 0;
  std::vector<double> sampled_seconds_;  ///< by rank
  std::vector<double> own_seconds_;      ///< of the last step
};

}  // namespace consist::launch
