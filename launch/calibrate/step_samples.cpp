#include "launch/calibrate/step_samples.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <tuple>
#include <utility>

#include "consist/op.h"
#include "core/cost/simulator.h"
#include "core/passes/compile.h"
#include "core/plan/parts.h"
#include "core/program/operands.h"
#include "core/runtime/communicators.h"
#include "core/runtime/trainer.h"
#include "core/runtime/training_state.h"
#include "launch/calibrate/scoped_job.h"

namespace consist::launch {
namespace {

/// Trains until the time is over, which rank 0 says; collects the times of the steps and of their instructions.
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

  static double median(std::vector<double> times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

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

}  // namespace

std::string text_of(const CalibrationStep& step) {
  return step.model + ", " + std::to_string(step.layers) + (step.layers == 1 ? " layer, " : " layers, ") +
         std::to_string(step.batch) + " x " + std::to_string(step.sequence) + " tokens, " + step.precision +
         (step.strategy.empty() ? "" : ", " + step.strategy);
}

struct StepSampler::Made {
  RunConfig config;
  Parts parts;
  Layout layout;
  Program program;
};

struct StepSampler::Measured {
  Program program;
  std::vector<double> instructions;
  double seconds = 0;
};

StepSampler::StepSampler(PluginHost& host, std::shared_ptr<Device> device, std::shared_ptr<Transport> transport, Job& job,
                         RunConfig config, double seconds)
    : host_(host),
      device_(std::move(device)),
      transport_(std::move(transport)),
      job_(job),
      config_(std::move(config)),
      seconds_(seconds) {}

StepSampler::Made StepSampler::make(const CalibrationStep& step, std::shared_ptr<const Machine> machine) const {
  RunConfig config = config_;
  config.model = step.model;
  config.precision = step.precision;
  config.dataset = "synthetic";
  config.batch = step.batch;
  config.sequence = step.sequence;
  config.ranks = step.strategy.empty() ? 1 : job_.size();
  if (!step.strategy.empty()) config.strategies = parse_strategies(step.strategy);
  Parts parts = make_parts(config, host_);
  parts.architecture = with_layers(parts, step.layers);
  parts.device = device_;
  Layout layout = lay_out(parts.uses, config.ranks);
  settle_batch(config, layout);
  CompileRequest request = parts.compile_request(config);
  request.machine = std::move(machine);
  Program program = compile_step(request, layout, step.strategy.empty() ? 0 : job_.rank());
  return {std::move(config), std::move(parts), std::move(layout), std::move(program)};
}

std::vector<double> StepSampler::mean_over_ranks(const std::vector<double>& own) {
  const std::string key = "calibrate/" + std::to_string(++meetings_) + "/";
  std::ostringstream text;
  text.precision(17);
  for (const double number : own) text << number << ' ';
  job_.put(key + std::to_string(job_.rank()), text.str());
  std::vector<double> sums(own.size());
  for (int rank = 0; rank < job_.size(); ++rank) {
    std::istringstream numbers(job_.get(key + std::to_string(rank), job_.timeout()));
    for (double& sum : sums) {
      double number = 0;
      numbers >> number;
      sum += number / job_.size();
    }
  }
  return sums;
}

StepSampler::Measured StepSampler::run(const CalibrationStep& step, std::shared_ptr<const Machine> machine, bool profile) {
  Made made = make(step, std::move(machine));
  add_dataset(made.parts, made.config, host_);
  std::optional<ScopedJob> job;
  std::optional<Communicators> communicators;
  CommunicatorOfQueue by_queue;
  const int rank = step.strategy.empty() ? 0 : job_.rank();
  if (!step.strategy.empty()) {
    const Program* const program = &made.program;
    const std::vector<NamedTransport> transports(static_cast<std::size_t>(made.layout.mesh.axes()),
                                                 {config_.transport, transport_});
    job.emplace(job_, "calibrate/step/" + std::to_string(++meetings_));
    communicators.emplace(made.layout.mesh, *job, *device_, transports, std::span(&program, 1));
    by_queue = communicators->by_queue();
  }
  TrainingState state(std::move(made.program), std::nullopt, *device_, by_queue, rank, 0);
  state.allocate(profile);
  state.initialize(1);
  job_.barrier("calibrate/start/" + std::to_string(++meetings_), job_.timeout());
  Sampling sampling(state, seconds_);
  const TrainerSettings settings{.steps = 1'000'000,  // the sampling ends it
                                 .micro_batch = made.config.batch,
                                 .sequence = made.config.sequence,
                                 .learning_rate = 1e-5,
                                 .optimizer = made.parts.optimizer.get(),
                                 .dataset = made.config.dataset};
  train(state, *made.parts.dataset, made.layout, rank, settings, sampling);
  return {state.step().program(), sampling.instructions(), sampling.seconds()};
}

std::vector<OpSample> StepSampler::sample(const CalibrationStep& step) {
  const Measured measured = run(step, nullptr, true);
  std::vector<OpSample> samples;
  std::vector<double> seconds;
  for (std::size_t n = 0; n < measured.program.instructions.size(); ++n) {
    const Instruction& i = measured.program.instructions[n];
    if (i.queue != Queue::compute() || !i.op->touches_memory() || first_operand(i) == no_tensor) continue;
    const Cost cost = i.op->cost(measured.program, i);
    samples.push_back({std::string(i.op->name()), measured.program[first_operand(i)].dtype, cost.flops, cost.bytes});
    seconds.push_back(measured.instructions.at(n));
  }
  seconds = mean_over_ranks(seconds);
  for (std::size_t n = 0; n < samples.size(); ++n) samples[n].seconds = seconds[n];
  return samples;
}

double StepSampler::step_seconds(const CalibrationStep& step, const std::shared_ptr<const Machine>& machine) {
  return mean_over_ranks({run(step, machine, false).seconds})[0];
}

double StepSampler::expected_seconds(const CalibrationStep& step, const std::shared_ptr<const Machine>& machine) const {
  PreparedProgram prepared(make(step, machine).program);
  prepared.plan();
  const Program* const program = &prepared.program();
  const Durations durations = estimated_durations(*program);
  return simulate({&program, 1}, {&durations, 1}).seconds;
}

bool StepSampler::fits(const CalibrationStep& step) const {
  PreparedProgram prepared(make(step, nullptr).program);
  return prepared.plan().bytes[static_cast<std::size_t>(MemorySpace::device)] < device_->info().memory_bytes;
}

std::vector<DeviceRates::OpTimes> op_times(const std::vector<OpSample>& samples) {
  struct Sum {
    double seconds = 0;
    int count = 0;
  };
  std::map<std::tuple<std::string, DType, double, double>, Sum> sums;
  for (const OpSample& sample : samples) {
    Sum& sum = sums[{sample.op, sample.dtype, sample.flops, sample.bytes}];
    sum.seconds += sample.seconds;
    ++sum.count;
  }
  std::vector<DeviceRates::OpTimes> all;
  for (const auto& [key, sum] : sums) {
    const auto& [op, dtype, flops, bytes] = key;
    if (sum.seconds <= 0) continue;
    if (all.empty() || all.back().op != op || all.back().dtype != dtype)
      all.push_back({.op = op, .dtype = dtype, .points = {}, .source = FigureSource::measured_here});
    all.back().points.push_back({flops, bytes, sum.seconds / sum.count});
  }
  return all;
}

}  // namespace consist::launch
