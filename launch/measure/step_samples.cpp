#include "launch/measure/step_samples.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "consist/op.h"
#include "core/cost/simulator.h"
#include "core/plan/parts.h"
#include "core/program/operands.h"
#include "core/state/training_state.h"
#include "core/training/session.h"
#include "core/training/trainer.h"
#include "launch/measure/power.h"
#include "launch/measure/scoped_job.h"
#include "launch/measure/statistics.h"

namespace consist::launch {
namespace {

/// Trains until the steps have taken so long; ranks of one job stop with the first of them. Collects the times of the steps and
/// of their instructions.
class Sampling final : public TrainerEvents {
 public:
  Sampling(TrainingState& state, double seconds) : state_(state), seconds_(seconds) {}

  void step_finished(const StepReport& report) override {
    ++steps_;
    // Libraries set themselves up in the first step, and a graph may be recorded in the second.
    if (steps_ <= not_counted) return;
    const std::vector<LaunchTime> launches = state_.step().executable().launch_times();
    launches_.resize(launches.size());
    for (std::size_t n = 0; n < launches.size(); ++n) launches_[n].push_back(launches[n].seconds());
    times_.push_back(report.seconds);
    sum_ += report.seconds;
  }
  void evaluated(const EvaluationReport& /*report*/) override {}
  void checkpoint(std::int64_t /*step*/) override {}
  bool stop_requested() override { return sum_ >= seconds_ && times_.size() >= least; }

  /// The median step.
  double seconds() const { return median(times_); }
  /// The median of each instruction, by index; empty if they were not measured.
  std::vector<double> instructions() const {
    std::vector<double> medians;
    for (const std::vector<double>& times : launches_) medians.push_back(median(times));
    return medians;
  }

 private:
  static constexpr std::int64_t not_counted = 2;
  static constexpr std::size_t least = 3;

  TrainingState& state_;
  const double seconds_;
  std::int64_t steps_ = 0;
  std::vector<double> times_;                  // by step
  std::vector<std::vector<double>> launches_;  // by instruction and step
  double sum_ = 0;
};

/// The same model with fewer layers.
std::unique_ptr<Architecture> with_layers(const Parts& parts, int layers) {
  nlohmann::json config = nlohmann::json::parse(parts.architecture->config_json());
  config["num_hidden_layers"] = layers;
  config.erase("layer_types");  // one by one
  config.erase("max_window_layers");
  return parts.model->from_config(config.dump());
}

/// OpSample::kind.
std::string kind_of(const Instruction& i, const Cost& cost, DType operand) {
  if (cost.flops <= 0) return "";
  const std::string bits = " of " + std::to_string(8 * size_of(operand)) + " bits";
  return (i.attributes.has("head_dim") ? std::string(i.op->name()) : "products") + bits;  // attention has products of heads
}

}  // namespace

std::string text_of(const CalibrationStep& step) {
  return step.model + ", " + std::to_string(step.layers) + (step.layers == 1 ? " layer, " : " layers, ") +
         std::to_string(step.batch) + " x " + std::to_string(step.sequence) + " tokens, " + step.precision +
         (step.strategy.empty() ? "" : ", " + step.strategy);
}

struct StepSampler::Measured {
  Program program;
  std::vector<double> instructions;
  std::vector<std::int64_t> workspace_bytes;  // by instruction
  double seconds = 0;
  std::optional<double> watts, clock;
};

StepSampler::StepSampler(PluginHost& host, std::shared_ptr<Device> device, std::shared_ptr<Transport> transport, JoinedJob& job,
                         RunConfig config, std::shared_ptr<const Machine> machine, double seconds)
    : host_(host),
      device_(std::move(device)),
      transport_(std::move(transport)),
      job_(job),
      config_(std::move(config)),
      machine_(std::move(machine)),
      seconds_(seconds) {}

Plan StepSampler::plan_of(const CalibrationStep& step, std::shared_ptr<Device> device) const {
  RunConfig config = config_;
  config.model = step.model;
  config.precision = step.precision;
  config.dataset = "synthetic";
  config.batch = step.batch;
  config.sequence = step.sequence;
  config.ranks = step.strategy.empty() ? 1 : job_.size();
  if (!step.strategy.empty()) config.strategies = parse_strategies(step.strategy);
  SelectedParts selected = select_parts(std::move(config), host_);
  selected.parts.architecture = with_layers(selected.parts, step.layers);
  return Plan(std::move(selected), host_, {std::move(device), machine_});
}

std::unique_ptr<JoinedJob> StepSampler::job_of(const CalibrationStep& step) {
  if (step.strategy.empty()) return join_job({});
  return std::make_unique<ScopedJob>(job_, "calibrate/step/" + std::to_string(++meetings_));
}

std::vector<double> StepSampler::sum_over_ranks(const std::vector<double>& own) {
  return job_.reduce("calibrate/sum", own, ReduceOp::sum, job_.timeout());
}

StepSampler::Measured StepSampler::run(const CalibrationStep& step, bool profile) {
  const std::unique_ptr<JoinedJob> job = job_of(step);
  Session session(plan_of(step, device_), *job, [this](const std::string& /*name*/) { return transport_; });
  const Plan& plan = session.plan();
  const std::shared_ptr<Dataset> dataset = open_dataset(plan.parts(), plan.config(), host_).dataset;
  NamedPrograms programs;
  programs.push_back({train_program, plan.step(job->rank())});
  session.prepare(std::move(programs));
  TrainingState& state = session.state();
  state.allocate(profile);
  state.initialize(1, filling_threads(job_));
  job_.barrier("calibrate/start/" + std::to_string(++meetings_), job_.timeout());
  const bool has_power = power_reading(device_->readings()).has_value();
  Sampling sampling(state, has_power && !profile ? std::max(seconds_, power_window_seconds) : seconds_);
  const TrainerSettings settings{.steps = 1'000'000,  // the sampling ends it
                                 .micro_batch = plan.config().batch,
                                 .sequence = plan.config().sequence,
                                 .learning_rate = 1e-5,
                                 .optimizers = plan.parts().optimizers(plan.config()),
                                 .dataset = plan.config().dataset};
  train(state, *dataset, plan.layout(), job->rank(), settings, sampling);
  const std::vector<DeviceReading> readings = has_power ? device_->readings() : std::vector<DeviceReading>{};
  const std::span<const std::int64_t> workspaces = state.step().workspace_bytes();
  return {state.step().program(), sampling.instructions(), {workspaces.begin(), workspaces.end()},
          sampling.seconds(),     power_reading(readings), clock_reading(readings)};
}

std::vector<OpSample> StepSampler::sample(const CalibrationStep& step) {
  const Measured measured = run(step, true);
  const CostModel& costs = costs_of(measured.program);
  const std::vector<double> planned = costs.durations(measured.program);
  std::vector<OpSample> samples;
  std::vector<double> own;
  for (std::size_t n = 0; n < measured.program.instructions.size(); ++n) {
    const Instruction& i = measured.program.instructions[n];
    if (i.queue != Queue::compute() || !i.op->touches_memory() || first_operand(i) == no_tensor) continue;
    const Cost cost = i.op->cost(measured.program, i);
    OpSample sample{std::string(i.op->name()), measured.program[first_operand(i)].dtype, cost.flops, cost.bytes};
    sample.depth = cost.depth;
    sample.kind = kind_of(i, cost, sample.dtype);
    sample.planned = planned.at(n);
    if (const double base = costs.scratch_base(measured.program, i); base > 0)
      sample.scratch = static_cast<double>(measured.workspace_bytes[n]) / base;
    samples.push_back(std::move(sample));
    own.push_back(measured.instructions.at(n));
  }
  own_seconds_ = own;
  sampled_seconds_.resize(static_cast<std::size_t>(job_.size()));
  own.resize(samples.size() + sampled_seconds_.size());  // behind the samples, what each rank took for all of them
  own[samples.size() + static_cast<std::size_t>(job_.rank())] =
      std::accumulate(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(samples.size()), 0.0);
  const std::vector<double> sums = sum_over_ranks(own);
  for (std::size_t n = 0; n < samples.size(); ++n) samples[n].seconds = sums[n] / job_.size();
  for (std::size_t rank = 0; rank < sampled_seconds_.size(); ++rank) sampled_seconds_[rank] += sums[samples.size() + rank];
  return samples;
}

double StepSampler::rank_skew() const {
  if (sampled_seconds_.empty()) return 0;
  const double sum = std::accumulate(sampled_seconds_.begin(), sampled_seconds_.end(), 0.0);
  const double slowest = *std::max_element(sampled_seconds_.begin(), sampled_seconds_.end());
  return sum > 0 ? slowest * static_cast<double>(sampled_seconds_.size()) / sum - 1 : 0;
}

TimedStep StepSampler::time(const CalibrationStep& step) {
  Measured measured = run(step, false);
  const double seconds = sum_over_ranks({measured.seconds}).front() / job_.size();
  return {std::move(measured.program), seconds, measured.watts, measured.clock};
}

double simulated_seconds(TimedStep& step, std::shared_ptr<const Machine> machine) {
  step.program.costs = std::make_shared<CostModel>(std::move(machine), step.program.mesh);
  const Program* const program = &step.program;
  const Durations durations = estimated_durations(*program);
  return simulate({&program, 1}, {&durations, 1}).seconds;
}

bool StepSampler::fits(const CalibrationStep& step) const {
  const int rank = step.strategy.empty() ? 0 : job_.rank();
  return plan_of(step, nullptr).ranks(rank).front().summary.planned_bytes < device_->info().memory_bytes;
}

}  // namespace consist::launch
