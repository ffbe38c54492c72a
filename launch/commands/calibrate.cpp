// consist calibrate: measures the machine it runs on, and writes the file that --machine takes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/base/split.h"
#include "core/connect/device_options.h"
#include "core/cost/machine_file.h"
#include "core/cost/step_errors.h"
#include "core/job/environment.h"
#include "core/plan/machine_choice.h"
#include "core/plan/parts.h"
#include "launch/commands/commands.h"
#include "launch/measure/host_link.h"
#include "launch/measure/links.h"
#include "launch/measure/op_times.h"
#include "launch/measure/power.h"
#include "launch/measure/sample_file.h"
#include "launch/measure/step_errors.h"
#include "launch/measure/steps.h"
#include "launch/measure/transport_list.h"
#include "launch/residual/learn_machine.h"
#include "launch/start/job_command.h"

namespace consist::commands {
namespace {

using enum OptionKind;

constexpr RunOption calibrate_options[] = {
    valued("output", text, "machine.json", "FILE", "not overwritten unless --overwrite is given"),
    a_switch("overwrite", "replace a file that is there"),
    valued("ranks", integer, "1", "N", "as many as will train on the machine; links are measured from two ranks on", "1..65536"),
    launch::device_option,
    valued("transport", text, "auto", "LIST",
           "whose links are measured: auto is the fastest there is; of several (nvlink,socket) each one, and the first is that "
           "of the steps"),
    valued("add-links", text, "", "FILE", "measures the links of --transport alone and adds them to this machine file"),
    valued(
        "learn", text, "", "LIST",
        "archives of runs, joined by commas: nothing is measured; the file is that of their machine with the times of ops that "
        "these runs had"),
    valued("models", text, "", "LIST", "presets: only steps of these are measured; left out: of many sizes"),
    valued("seconds", real, "1", "S", "measured per step, about"),
    valued("samples", text, "", "FILE", "also write the time of every sampled instruction (JSON)"),
    launch::timeout_option,
    launch::plugin_option,
};

struct CalibrateRequest {
  std::string output, samples;
  std::string add_links;  ///< a machine file; empty: one is made
  double seconds = 1;
  std::vector<std::string> models;
  bool overwrite = false;
};

CalibrateRequest read_calibrate_request(const CommandLine& line) {
  CalibrateRequest request{line.value("output"), line.value("samples"), line.value("add-links"), line.real("seconds"), {}, false};
  if (const std::string models = line.text("models"); !models.empty()) {
    for (const std::string_view model : split(models, ',')) {
      if (model.empty()) throw UsageError("--models '" + models + "' has an empty name");
      request.models.emplace_back(model);
    }
  }
  if (!(request.seconds > 0)) throw UsageError("--seconds must be above 0");
  if (!request.add_links.empty()) {
    for (const char* option : {"output", "samples"}) {
      if (line.has(option))
        throw UsageError("--add-links " + request.add_links + " measures links alone: --" + option + " has no place beside it");
    }
    request.output = request.add_links;
    return request;
  }
  request.overwrite = line.flag("overwrite");
  check_output({"--output", request.output, request.overwrite});
  if (!request.samples.empty()) check_output({"--samples", request.samples, request.overwrite});
  return request;
}

/// One rank's part.
class Calibration {
 public:
  Calibration(const CalibrateRequest& request, const RunConfig& config, PluginHost& host, JoinedJob& job)
      : request_(request),
        job_(job),
        device_(open_for_training(request, config, host, job)),
        info_(device_->info()),
        plan_(launch::calibration_plan(info_.kind, request.models)),
        transport_name_(job.size() > 1 ? launch::transport_of_all(config, host, job, info_.kind) : config.transport),
        machine_(agree_on_machine(job, info_, path_of(request.add_links)).machine) {
    if (job.size() > 1) transport_ = make_transport(transport_name_, config, host, info_.kind);
    RunConfig over_it = config;
    over_it.transport = transport_name_;
    sampler_ = std::make_unique<launch::StepSampler>(host, device_, transport_, job, std::move(over_it),
                                                     std::make_shared<const Machine>(machine_), request.seconds);
  }

  void run() {
    say(info_.name + ", " + std::to_string(job_.size()) + (job_.size() == 1 ? " rank" : " ranks") +
        "; what is not measured is taken from '" + machine_.name + "'");
    const std::optional<double> idle = idle_watts();
    const Machine* const own = find_machine_of_device(info_.kind, info_.name);
    const Figure limit = own == nullptr ? Figure() : power_named(own->name).limit;
    machine_.name = std::filesystem::path(request_.output).stem().string();
    machine_.devices = {info_.name};
    machine_.device.memory_bytes = {static_cast<double>(info_.memory_bytes), FigureSource::measured_here};
    sample();
    measure_host();
    if (job_.size() > 1) measure_links();
    check();
    power_ = launch::measured_power(limit, idle, power_samples_);
    say(power_.is_known() ? "energy: " + text_of_power() : "energy is not known: the device does not tell its power");
  }

  /// Adds links to a file that is there.
  void add_links() {
    if (job_.size() == 1)
      throw UsageError("--add-links measures links between ranks, and there is one rank: give --ranks 2 or more");
    if (job_.rank() == 0) {
      power_ = power_named(path_of(request_.add_links));
      errors_ = step_errors_for(path_of(request_.add_links), machine_);
    }
    const LinkRates own = machine_.node;
    measure_links();
    machine_.node = own;
    std::erase_if(errors_,  // they were predicted with other links
                  [&](const StepError& error) { return error.kind == links_kind(transport_name_, false); });
  }

  void write() const {
    if (job_.rank() != 0) return;
    const std::string text = to_json(machine_, power_, errors_);
    machine_from_json(text, request_.output);  // what others will read must be legal
    const bool adds = !request_.add_links.empty();
    write_output({adds ? "--add-links" : "--output", request_.output, adds || request_.overwrite}, text);
    std::printf("%s\n", printable("written: " + request_.output + "; use it as --machine " + request_.output).c_str());
  }

 private:
  /// As --machine takes it, also where it has neither a folder nor an ending.
  static std::string path_of(const std::string& file) {
    return file.empty() || file.find('/') != std::string::npos ? file : "./" + file;
  }

  /// With the options that a training would settle by measuring (core/connect/device_options.h), for the first of the steps in
  /// less than fp32.
  static std::shared_ptr<Device> open_for_training(const CalibrateRequest& request, RunConfig config, PluginHost& host,
                                                   JoinedJob& job) {
    const std::string kind = make_device(config, host).name;
    const std::vector<launch::CalibrationStep> steps = launch::calibration_plan(kind, request.models).sampled;
    const auto narrow = std::find_if(steps.begin(), steps.end(), [](const auto& step) { return step.precision != "fp32"; });
    const launch::CalibrationStep& step = narrow == steps.end() ? steps.front() : *narrow;
    config.model = step.model;
    config.precision = step.precision;
    config.batch = step.batch;
    config.sequence = step.sequence;
    const OpenDevice opened = open_device(make_parts(config, host), config, host, job);
    for (const std::string& note : opened.notes) std::printf("%s\n", printable(note).c_str());
    return opened.device;
  }

  /// Watts of the device that has computed nothing for as long as its sensor looks back; nothing where it has none.
  std::optional<double> idle_watts() const {
    if (!launch::power_reading(device_->readings())) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::duration<double>(2 * launch::power_window_seconds));
    return launch::power_reading(device_->readings());
  }

  std::string text_of_power() const {
    if (power_.is_bound()) return origin_of(power_);
    return fixed_text(power_.loads.front().watts.value, 0) + " W under load, " + fixed_text(power_.idle.value, 0) + " W idle, " +
           origin_of(power_);
  }

  void say(const std::string& text) const {
    if (job_.rank() != 0) return;
    std::printf("%s\n", printable(text).c_str());
    std::fflush(stdout);
  }

  void sample() {
    std::vector<launch::CalibrationStep> fitting;
    std::vector<std::vector<launch::OpSample>> steps;
    for (std::size_t n = 0; n < plan_.sampled.size(); ++n) {
      const launch::CalibrationStep& step = plan_.sampled[n];
      const std::string head = "[" + std::to_string(n + 1) + "/" + std::to_string(plan_.sampled.size()) + "] " + text_of(step);
      if (!sampler_->fits(step)) {
        say(head + ": left out, does not fit the device's memory");
        continue;
      }
      fitting.push_back(step);
      steps.push_back(sampler_->sample(step));
      double seconds = 0;
      for (const launch::OpSample& sample : steps.back()) seconds += sample.seconds;
      say(head + ": " + milliseconds_text(seconds, 2) + " in " + std::to_string(steps.back().size()) + " kernels");
    }
    if (!steps.empty()) {
      const double measuring = launch::measuring_seconds(steps.front(), sampler_->time(fitting.front()).seconds);
      for (std::vector<launch::OpSample>& step : steps) launch::take_off(step, measuring);
      say("measuring makes a kernel " + fixed_text(measuring * 1e6, 1) + " us longer: taken off");
    }
    if (job_.rank() == 0 && !request_.samples.empty())
      launch::write_samples({"--samples", request_.samples, request_.overwrite}, fitting, steps);
    const launch::ThrottlingFit fit = launch::fit_throttling(steps);
    say(text_of(fit));
    machine_.device.throttling = {{fit.lag, FigureSource::measured_here}, {fit.memory_bound, FigureSource::measured_here}};
    machine_.device.times = launch::op_times(steps, fit);
    if (job_.size() == 1) return;
    machine_.rank_skew = {sampler_->rank_skew(), FigureSource::measured_here};
    say("the slowest rank takes " + percent_text(machine_.rank_skew.value, 1) + " longer than their mean");
  }

  void measure_host() {
    const launch::HostLink link = launch::measure_host_link(job_, *device_);
    if (!link.problem.empty()) {
      say("copies between host and device were not measured, their rates are those of the nearest machine: " + link.problem);
      return;
    }
    const auto mean = [](const double(&rates)[2]) { return 2 / (1 / rates[0] + 1 / rates[1]); };  // of as many bytes each way
    const auto text = [](const double(&rates)[2]) {
      return si_text(rates[0]) + "B/s to the device, " + si_text(rates[1]) + "B/s from it";
    };
    machine_.host_alone = {mean(link.alone), FigureSource::measured_here};
    machine_.host_both = {link.both, FigureSource::measured_here};
    if (job_.size() > 1) {
      machine_.host_shared = {mean(link.shared), FigureSource::measured_here};
      machine_.host_shared_ranks = job_.size();
    }
    say("host: " + text(link.alone) + (job_.size() > 1 ? "; all ranks at once, each " + text(link.shared) : "") +
        "; while both directions copy, " + percent_text(link.both) + " of that");
  }

  void measure_links() {
    const std::unique_ptr<Communicator> communicator = launch::connect_all(*transport_, job_, "calibrate.0", info_.kind);
    machine_.node = launch::measure_links(job_, *device_, *communicator, plan_.most_bytes, machine_.node);
    for (const LinkRates::Curve& curve : machine_.node.curves) {
      if (curve.op != "*")
        say(curve.op + " of " + std::to_string(curve.members) + ": " + si_text(curve.rates.back().rate) + "B/s, " +
            fixed_text(curve.latency * 1e6, 1) + " us");
    }
    fit_beside();
    launch::take_links(machine_, transport_name_, machine_.node);
  }

  /// The shares of their speed that collectives and kernels leave each other are those with which two simulated steps take as
  /// long as the real ones: one whose gradients are reduced beside backward, and one that also gathers its parameters.
  void fit_beside() {
    launch::TimedStep reduced = sampler_->time(plan_.reduced), gathered = sampler_->time(plan_.gathered);
    constexpr int rounds = 3;
    for (int round = 0; round < rounds; ++round) {
      fit(machine_.node.beside_compute, reduced);
      fit(machine_.node.compute_beside, gathered);
    }
    const auto text = [&](const launch::CalibrationStep& step, launch::TimedStep& timed) {
      return text_of(step) + ": " + milliseconds_text(timed.seconds) + ", simulated " +
             fixed_text(launch::simulated_seconds(timed, std::make_shared<Machine>(machine_)) * 1e3, 1);
    };
    say("beside kernels collectives keep " + percent_text(machine_.node.beside_compute.value) + " of that, and kernels " +
        percent_text(machine_.node.compute_beside.value) + " of their speed (" + text(plan_.reduced, reduced) + "; " +
        text(plan_.gathered, gathered) + ")");
  }

  /// Sets a figure of machine_ so that the step simulated takes as long as it took, as far as a share can.
  void fit(Figure& figure, launch::TimedStep& step) const {
    double low = 0.2, high = 1;
    constexpr int halvings = 12;
    for (int n = 0; n < halvings; ++n) {
      const double middle = 0.5 * (low + high);
      figure = {middle, FigureSource::measured_here};
      (launch::simulated_seconds(step, std::make_shared<Machine>(machine_)) > step.seconds ? low : high) = middle;
    }
    figure.value = high;
  }

  /// The compute queue works for as long as its instructions take by the machine, in the share of the step that they have there.
  void add_power(const launch::TimedStep& step) {
    if (!step.watts) return;
    const Program* const program = &step.program;
    const Durations durations = estimated_durations(*program);
    const Simulation simulation = simulate({&program, 1}, {&durations, 1});
    power_samples_.push_back({*step.watts, step.seconds,
                              step.seconds * std::min(1.0, simulation.ranks.front().busy / simulation.seconds),
                              step.clock.value_or(0)});
  }

  /// Steps that the machine was not measured with, predicted: their errors, by kind of step, become those of the file.
  void check() {
    const auto machine = std::make_shared<const Machine>(machine_);
    std::vector<launch::CheckedStep> checked;
    for (const launch::CalibrationStep& step : plan_.checked) {
      if (!sampler_->fits(step) || (job_.size() == 1 && !step.strategy.empty())) continue;
      launch::TimedStep timed = sampler_->time(step);
      const double measured = timed.seconds, expected = launch::simulated_seconds(timed, machine);
      if (step.strategy.empty()) add_power(timed);
      const Program* const program = &timed.program;
      checked.push_back({kinds_of({&program, 1}, {}), expected, measured});
      char line[160];
      std::snprintf(line, sizeof line, ": measured %.2f ms, predicted %.2f ms, %+.1f%%", measured * 1e3, expected * 1e3,
                    100 * (expected / measured - 1));
      say("check: " + text_of(step) + line);
    }
    errors_ = launch::errors_of(checked);
    machine_.step_error = error_of_device(errors_);
    for (const StepError& error : errors_)
      say("error of steps, " + error.kind + ": " + percent_text(error.error.value, 1) + ", by " + std::to_string(error.steps) +
          " of them");
  }

  const CalibrateRequest& request_;
  JoinedJob& job_;
  std::shared_ptr<Device> device_;
  const DeviceInfo info_;
  const launch::CalibrationPlan plan_;
  const std::string transport_name_;
  Power power_;  ///< of rank 0's device
  StepErrors errors_;
  std::vector<launch::PowerSample> power_samples_;
  Machine machine_;  ///< with what is known of such devices, until it is measured
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<launch::StepSampler> sampler_;
};

/// One after the other, each in processes of its own: NCCL reads its settings once per process.
int calibrate_each(const std::vector<std::string>& transports, const CommandLine& line, const CalibrateRequest& request) {
  if (!request.add_links.empty() || line.integer("ranks") < 2 || job_address_from_environment(process_environment()).size > 1)
    throw UsageError(
        "--transport lists several, which are measured one after the other between processes that calibrate starts: give "
        "--ranks 2 or more; where something else starts the ranks, or with --add-links, give one transport at a time");
  for (const std::string& transport : transports) {
    const bool first = transport == transports.front();
    const std::vector<std::string> arguments =
        launch::arguments_for(transport, transports, line.arguments, first ? "" : request.output);
    if (const int status = run_command(calibrate_command, arguments); status != 0) return status;
  }
  return 0;
}

int calibrate(const CommandLine& line) {
  if (line.has("learn")) return launch::learn_machine(line);
  const CalibrateRequest request = read_calibrate_request(line);
  RunConfig config = launch::config_of(line);
  const std::vector<std::string_view> listed = split(config.transport, ',');
  const std::vector<std::string> transports(listed.begin(), listed.end());
  PluginHost host(line.texts("plugin"));
  for (const std::string& transport : transports) {
    if (transport != automatic_transport) host.find("transport", transport);
    if (std::count(transports.begin(), transports.end(), transport) > 1)
      throw UsageError("--transport lists '" + transport + "' twice");
  }
  if (transports.size() > 1) return calibrate_each(transports, line, request);
  launch::take_part_options(line, host, config);
  return launch::run_on_ranks(line, config, host, [&](JoinedJob& job) {
    Calibration calibration(request, config, host, job);
    request.add_links.empty() ? calibration.run() : calibration.add_links();
    job.leave(job.timeout());
    calibration.write();
    return 0;
  });
}

}  // namespace

constinit const Command calibrate_command{
    .name = "calibrate",
    .summary = "measure this machine and write the file that --machine takes",
    .usage = "[OPTIONS] [--<part>.<option> VALUE]...",
    .about =
        "Measures this machine and writes a machine file (docs/machines.md) that --machine takes: times of products,\n"
        "attention and memory-bound ops within training steps, on all ranks at once, how their clock follows the load,\n"
        "and rates of the links between the ranks and to the host. Steps of other sizes are then measured and predicted:\n"
        "from their errors the file has those of steps on one device and over the transport's links.\n",
    .own = calibrate_options,
    .notes =
        "Takes a minute or two. Peaks and links to other nodes are not measured: they are taken from the nearest machine\n"
        "that is known.\n",
    .example = "consist calibrate --device cuda --ranks 4 --transport nvlink --output here.json\n",
    .takes = Takes::parts,
    .run = calibrate};

}  // namespace consist::commands
