// consist calibrate: measures the machine it runs on, and writes the file that --machine takes.
#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/text.h"
#include "core/cost/machine_file.h"
#include "core/files/split.h"
#include "core/job/environment.h"
#include "core/plan/machine_choice.h"
#include "core/plan/parts.h"
#include "launch/calibrate/links.h"
#include "launch/calibrate/steps.h"
#include "launch/commands/commands.h"
#include "launch/launcher.h"
#include "launch/run_options.h"

namespace consist::commands {
namespace {

namespace po = boost::program_options;

constexpr const char* help =
    "usage: consist calibrate [OPTIONS] [--<part>.<option> VALUE]...   (defaults in brackets)\n\n"
    "Measures this machine and writes a machine file (docs/machines.md) that --machine takes: times of products,\n"
    "attention and memory-bound ops within training steps, on all ranks at once, and rates of the links between the\n"
    "ranks. Steps of other sizes are then measured and predicted: the largest error becomes that of the file.\n\n"
    "  --output FILE [machine.json]   not overwritten unless --overwrite is given\n"
    "  --ranks N [1]                  as many as will train on the machine; links are measured from two ranks on\n"
    "  --device D [auto: the fastest] --transport T [socket]\n"
    "  --models LIST [of many sizes]  presets: only steps of these are measured\n"
    "  --seconds S [1]                measured per step, about\n"
    "  --timeout SECONDS [60]         longest wait for another rank\n"
    "  --plugin PATH                  also look for plugins in this file or folder; may be repeated\n\n"
    "Takes a minute or two. Peaks, links to other nodes, and copies between host and device are not measured: they are\n"
    "taken from the nearest machine that is known.\n\n"
    "example: consist calibrate --device cuda --ranks 4 --transport nvlink --output here.json\n";

struct Request {
  RunConfig config;
  std::string output;
  double seconds = 1;
  bool overwrite = false, ranks_given = false;
  std::vector<std::string> models, plugin_paths;
};

po::options_description options() {
  po::options_description all;
  all.add_options()("help", "this text")("output", po::value<std::string>()->default_value("machine.json"))(
      "overwrite", po::bool_switch())("ranks", po::value<int>()->default_value(1))(
      "device", po::value<std::string>()->default_value("auto"))("transport", po::value<std::string>()->default_value("socket"))(
      "models", po::value<std::string>()->default_value(""))("seconds", po::value<double>()->default_value(1, "1"))(
      "timeout", po::value<int>()->default_value(60))("plugin", po::value<std::vector<std::string>>()->composing());
  return all;
}

Request read_request(const po::variables_map& values) {
  Request request;
  request.config.device = values["device"].as<std::string>();
  request.config.transport = values["transport"].as<std::string>();
  request.config.ranks = values["ranks"].as<int>();
  request.config.timeout_seconds = values["timeout"].as<int>();
  request.ranks_given = !values["ranks"].defaulted();
  request.output = values["output"].as<std::string>();
  request.overwrite = values["overwrite"].as<bool>();
  request.seconds = values["seconds"].as<double>();
  if (values.count("plugin") != 0) request.plugin_paths = values["plugin"].as<std::vector<std::string>>();
  if (const std::string models = values["models"].as<std::string>(); !models.empty()) {
    for (const std::string_view model : split(models, ',')) {
      if (model.empty()) throw UsageError("--models '" + models + "' has an empty name");
      request.models.emplace_back(model);
    }
  }
  if (request.config.ranks < 1)
    throw UsageError("--ranks is " + std::to_string(request.config.ranks) + "; it must be at least 1");
  if (request.config.timeout_seconds < 1)
    throw UsageError("--timeout is " + std::to_string(request.config.timeout_seconds) + "; it must be at least 1");
  if (!(request.seconds > 0) || !std::isfinite(request.seconds)) throw UsageError("--seconds must be above 0");
  if (!request.overwrite && std::filesystem::exists(request.output))
    throw UsageError("--output " + request.output + " is there already; choose another name, or give --overwrite");
  return request;
}

/// One rank's part.
class Calibration {
 public:
  Calibration(const Request& request, PluginHost& host, JoinedJob& job)
      : request_(request),
        job_(job),
        device_(open_device(host)),
        info_(device_->info()),
        plan_(launch::calibration_plan(info_.kind, request.models)) {
    if (job.size() > 1) {
      const auto own = request.config.plugin_options.find(request.config.transport);
      transport_ =
          host.make<Transport>("transport", request.config.transport,
                               own == request.config.plugin_options.end() ? std::map<std::string, std::string>{} : own->second);
      if (const std::string reason = transport_->unavailable(info_.kind); !reason.empty())
        throw UnavailableError("transport '" + request.config.transport + "' cannot serve device '" + info_.kind +
                               "': " + reason);
    }
    sampler_ = std::make_unique<launch::StepSampler>(host, device_, transport_, job, request.config, request.seconds);
  }

  void run() {
    MachineChoice known = machine_for(info_);
    machine_ = known.machine;
    say(info_.name + ", " + std::to_string(job_.size()) + (job_.size() == 1 ? " rank" : " ranks") +
        "; what is not measured is taken from '" + machine_.name + "'");
    machine_.name = std::filesystem::path(request_.output).stem().string();
    machine_.devices = {info_.name};
    machine_.ranks_per_node = job_.local_size();
    machine_.device.memory_bytes = {static_cast<double>(info_.memory_bytes), FigureSource::measured_here};
    machine_.device.times = sample();
    if (job_.size() > 1) measure_links();
    machine_.step_error = {check(), FigureSource::measured_here};
  }

  void write() const {
    if (job_.rank() != 0) return;
    const std::string text = to_json(machine_);
    machine_from_json(text, request_.output);  // what others will read must be legal
    AtomicFile file(request_.output);
    file.write(text.data(), text.size());
    file.commit();
    std::printf("%s\n", printable("written: " + request_.output + "; use it as --machine " + request_.output).c_str());
  }

 private:
  std::shared_ptr<Device> open_device(PluginHost& host) {
    Parts parts;
    add_device(parts, request_.config, host);
    parts.device->open(job_.local_rank(), job_.local_size());
    return parts.device;
  }

  void say(const std::string& text) const {
    if (job_.rank() != 0) return;
    std::printf("%s\n", printable(text).c_str());
    std::fflush(stdout);
  }

  std::vector<DeviceRates::OpTimes> sample() {
    std::vector<launch::OpSample> all;
    for (std::size_t n = 0; n < plan_.sampled.size(); ++n) {
      const launch::CalibrationStep& step = plan_.sampled[n];
      const std::string head = "[" + std::to_string(n + 1) + "/" + std::to_string(plan_.sampled.size()) + "] " + text_of(step);
      if (!sampler_->fits(step)) {
        say(head + ": left out, does not fit the device's memory");
        continue;
      }
      const std::vector<launch::OpSample> samples = sampler_->sample(step);
      double seconds = 0;
      for (const launch::OpSample& sample : samples) seconds += sample.seconds;
      say(head + ": " + fixed_text(seconds * 1e3, 2) + " ms in " + std::to_string(samples.size()) + " kernels");
      all.insert(all.end(), samples.begin(), samples.end());
    }
    return launch::op_times(all);
  }

  void measure_links() {
    GroupRequest group{"calibrate.0", {}, job_.rank(), info_.kind};
    for (int rank = 0; rank < job_.size(); ++rank) group.ranks.push_back(rank);
    const std::unique_ptr<Communicator> communicator = transport_->connect(job_, group);
    machine_.node = launch::measure_links(job_, *device_, *communicator, plan_.most_bytes, machine_.node);
    for (const LinkRates::Curve& curve : machine_.node.curves) {
      if (curve.op != "*")
        say(curve.op + " of " + std::to_string(curve.members) + ": " + si_text(curve.rates.back().rate) + "B/s, " +
            fixed_text(curve.latency * 1e6, 1) + " us");
    }
    fit_beside();
  }

  /// The shares of their speed that collectives and kernels leave each other are those with which two simulated steps take as long
  /// as the real ones: one whose gradients are reduced beside backward, and one that also gathers its parameters.
  void fit_beside() {
    const double reduced = sampler_->step_seconds(plan_.reduced, nullptr),
                 gathered = sampler_->step_seconds(plan_.gathered, nullptr);
    constexpr int rounds = 3;
    for (int round = 0; round < rounds; ++round) {
      fit(machine_.node.beside_compute, plan_.reduced, reduced);
      fit(machine_.node.compute_beside, plan_.gathered, gathered);
    }
    const auto text = [&](const launch::CalibrationStep& step, double measured) {
      return text_of(step) + ": " + fixed_text(measured * 1e3, 1) + " ms, simulated " +
             fixed_text(sampler_->expected_seconds(step, std::make_shared<Machine>(machine_)) * 1e3, 1);
    };
    say("beside kernels collectives keep " + fixed_text(100 * machine_.node.beside_compute.value, 0) + "% of that, and kernels " +
        fixed_text(100 * machine_.node.compute_beside.value, 0) + "% of their speed (" + text(plan_.reduced, reduced) + "; " +
        text(plan_.gathered, gathered) + ")");
  }

  /// Sets a figure of machine_ so that the step takes `measured` seconds, as far as a share can.
  void fit(Figure& figure, const launch::CalibrationStep& step, double measured) const {
    double low = 0.2, high = 1;
    constexpr int halvings = 12;
    for (int n = 0; n < halvings; ++n) {
      const double middle = 0.5 * (low + high);
      figure = {middle, FigureSource::measured_here};
      (sampler_->expected_seconds(step, std::make_shared<Machine>(machine_)) > measured ? low : high) = middle;
    }
    figure.value = high;
  }

  /// The largest relative error of steps that the machine was not measured with.
  double check() {
    const auto machine = std::make_shared<const Machine>(machine_);
    double largest = 0;
    for (const launch::CalibrationStep& step : plan_.checked) {
      if (!sampler_->fits(step)) continue;
      const double measured = sampler_->step_seconds(step, nullptr), expected = sampler_->expected_seconds(step, machine);
      const double error = expected / measured - 1;
      largest = std::max(largest, std::abs(error));
      char line[160];
      std::snprintf(line, sizeof line, ": measured %.2f ms, predicted %.2f ms, %+.1f%%", measured * 1e3, expected * 1e3,
                    100 * error);
      say("check: " + text_of(step) + line);
    }
    return largest;
  }

  const Request& request_;
  JoinedJob& job_;
  std::shared_ptr<Device> device_;
  const DeviceInfo info_;
  const launch::CalibrationPlan plan_;
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<launch::StepSampler> sampler_;
  Machine machine_;
};

}  // namespace

int calibrate(const Arguments& arguments) {
  po::variables_map values;
  std::vector<std::string> rest;
  try {
    const po::options_description known = options();
    const po::parsed_options parsed = po::command_line_parser(arguments)
                                          .options(known)
                                          .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing &
                                                 ~po::command_line_style::allow_short)
                                          .allow_unregistered()
                                          .run();
    po::store(parsed, values);
    po::notify(values);
    rest = po::collect_unrecognized(parsed.options, po::include_positional);
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + " (see consist calibrate --help)");
  }
  if (values.count("help") != 0) {
    std::fputs(help, stdout);
    return 0;
  }
  Request request = read_request(values);
  PluginHost host(request.plugin_paths);
  request.config.plugin_options = read_plugin_options(rest, host);
  host.find("transport", request.config.transport);

  JobAddress address = job_address_from_environment(process_environment());
  address.timeout = std::chrono::seconds(request.config.timeout_seconds);
  say_plugin_warnings(host, address);
  if (address.size == 1 && request.config.ranks > 1) {
    Arguments again{"calibrate"};
    again.insert(again.end(), arguments.begin(), arguments.end());
    return launch::launch_local(request.config.ranks, again);
  }
  if (request.ranks_given && request.config.ranks != address.size) {
    throw UsageError("--ranks is " + std::to_string(request.config.ranks) + ", but the environment says that the job has " +
                     std::to_string(address.size) + " ranks; leave --ranks out");
  }
  const std::unique_ptr<JoinedJob> job = join_job(address);
  try {
    Calibration calibration(request, host, *job);
    calibration.run();
    job->leave(job->timeout());
    calibration.write();
    return 0;
  } catch (const std::exception& error) {
    job->fail(error.what());
    throw;
  }
}

}  // namespace consist::commands
