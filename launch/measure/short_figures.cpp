#include "launch/measure/short_figures.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "consist/error.h"
#include "core/connect/device_options.h"
#include "core/plan/machine_choice.h"
#include "core/plan/parts.h"
#include "core/plan/transports.h"
#include "launch/measure/bench_collectives.h"
#include "launch/measure/links.h"
#include "launch/measure/op_times.h"
#include "launch/measure/power.h"
#include "launch/measure/statistics.h"
#include "launch/measure/step_samples.h"
#include "launch/measure/steps.h"

namespace consist::launch {
namespace {

constexpr double seconds_of_a_step = 0.5;
constexpr int most_rounds = 16;  // of pairs: each member meets as many others

/// Sizes of what is sent.
struct Amounts {
  std::int64_t collective, message;
};
Amounts amounts_for(const std::string& device_kind) {
  if (device_kind == "cpu") return {std::int64_t{4} << 20, std::int64_t{2} << 20};
  return {std::int64_t{64} << 20, std::int64_t{32} << 20};
}

/// One rank's part.
class ShortMeasurement {
 public:
  ShortMeasurement(const RunConfig& config, PluginHost& host, JoinedJob& job)
      : config_(with_step(config, host)),
        host_(host),
        job_(job),
        device_(consist::open_device(make_parts(config_, host), config_, host, job).device),
        info_(device_->info()),
        choice_(agree_on_machine(job, info_, config.machine)) {}

  ShortFigures run() {
    figures_.device = info_.name;
    figures_.base = figures_.measured = choice_.machine;
    // The file of all processors is none of this one's.
    const bool is_own = choice_.note.empty() && !choice_.machine.devices.empty();
    figures_.is_comparable = choice_.machine.device_kind == info_.kind && (!config_.machine.empty() || is_own);
    find_nodes();
    measure_step();
    const HostLink link = measure_host_link(job_, *device_);
    if (link.problem.empty()) take_host(link);
    if (job_.local_size() > 1) measure_group(false, {job_.host_ranks().begin(), job_.host_ranks().end()});
    if (nodes_ > 1) measure_group(true, counterparts());
    gather();
    return std::move(figures_);
  }

 private:
  static RunConfig with_step(RunConfig config, PluginHost& host) {
    const CalibrationStep step = calibration_plan(make_device(config, host).name, {}).reduced;
    config.model = step.model;
    config.precision = step.precision;
    config.batch = step.batch;
    config.sequence = step.sequence;
    return config;
  }

  /// The numbers of the hosts, by rank. Throws UsageError for hosts with different numbers of ranks: links between them are those
  /// of all ranks.
  void find_nodes() {
    const std::vector<std::string> leaders =
        job_.all_gather("doctor/leaders", std::to_string(job_.host_ranks().front()), job_.timeout());
    std::vector<std::string> seen;
    for (const std::string& leader : leaders) {
      auto at = std::find(seen.begin(), seen.end(), leader);
      if (at == seen.end()) at = seen.insert(seen.end(), leader);
      node_of_.push_back(static_cast<int>(at - seen.begin()));
    }
    nodes_ = static_cast<int>(seen.size());
    for (int node = 0; node < nodes_; ++node) {
      if (std::count(node_of_.begin(), node_of_.end(), node) * nodes_ != job_.size())
        throw UsageError("hosts have different numbers of ranks; links are measured between hosts that have as many");
    }
  }

  /// The rank of each node that has this one's place on it.
  std::vector<int> counterparts() const {
    const std::span<const int> here = job_.host_ranks();
    const auto place = std::find(here.begin(), here.end(), job_.rank()) - here.begin();
    std::vector<int> ranks;
    for (int node = 0; node < nodes_; ++node) {
      auto left = place;
      for (int rank = 0; rank < job_.size(); ++rank) {
        if (node_of_[static_cast<std::size_t>(rank)] == node && left-- == 0) ranks.push_back(rank);
      }
    }
    return ranks;
  }

  /// The first step that fits all ranks' memory, on one rank each.
  CalibrationStep choose_step(const StepSampler& sampler) {
    const CalibrationPlan plan = calibration_plan(info_.kind, {});
    std::vector<CalibrationStep> steps{plan.reduced};
    steps.front().strategy = "";
    steps.insert(steps.end(), plan.sampled.begin(), plan.sampled.end());
    for (const CalibrationStep& step : steps) {
      const double fits = sampler.fits(step) ? 1 : 0;
      if (job_.reduce("doctor/fits", {fits}, ReduceOp::min, job_.timeout()).front() > 0) return step;
    }
    throw UsageError("no step that would measure the devices fits their memory, " + info_.name);
  }

  void measure_step() {
    RunConfig config = config_;
    config.transport = std::string(automatic_transport);
    StepSampler sampler(host_, device_, nullptr, job_, std::move(config), std::make_shared<const Machine>(choice_.machine),
                        seconds_of_a_step);
    const CalibrationStep step = choose_step(sampler);
    figures_.step = text_of(step);
    std::vector<OpSample> samples = sampler.sample(step);
    for (std::size_t n = 0; n < samples.size(); ++n) samples[n].seconds = sampler.own_seconds()[n];
    const TimedStep timed = sampler.time(step);
    take_off(samples, measuring_seconds(samples, timed.seconds));
    double seconds[2] = {}, planned[2] = {}, work[2] = {};  // of kernels that compute, and of the others
    for (const OpSample& sample : samples) {
      const int kind = sample.flops > 0 ? 0 : 1;
      seconds[kind] += sample.seconds;
      planned[kind] += sample.planned;
      work[kind] += kind == 0 ? sample.flops : sample.bytes;
    }
    own_ = {.rank = job_.rank(),
            .node = node_of_[static_cast<std::size_t>(job_.rank())],
            .host = std::string(job_.host()),
            .products = work[0] / seconds[0],
            .memory = work[1] / seconds[1],
            .products_time = seconds[0] / planned[0],
            .memory_time = seconds[1] / planned[1],
            .seconds = seconds[0] + seconds[1],
            .clock = timed.clock.value_or(0)};
  }

  void take_host(const HostLink& link) {
    const auto mean = [](const double(&rates)[2]) { return 2 / (1 / rates[0] + 1 / rates[1]); };
    Machine& measured = figures_.measured;
    figures_.has_host = true;
    measured.host_alone = {mean(link.alone), FigureSource::measured_here};
    measured.host_both = {link.both, FigureSource::measured_here};
    if (job_.local_size() == 1) return;
    measured.host_shared = {mean(link.shared), FigureSource::measured_here};
    measured.host_shared_ranks = job_.local_size();
  }

  /// The links of this rank's group of `ranks`, while those of all other groups are measured, too.
  void measure_group(bool across, std::vector<int> ranks) {
    const std::string name = transport_for(across);
    const std::shared_ptr<Transport> transport = make_transport(name, config_, host_, info_.kind);
    const auto index = static_cast<int>(std::find(ranks.begin(), ranks.end(), job_.rank()) - ranks.begin());
    const std::string group = (across ? "doctor.across." : "doctor.within.") + std::to_string(ranks.front());
    const std::unique_ptr<Communicator> communicator = transport->connect(job_, {group, ranks, index, info_.kind});
    const Amounts amounts = amounts_for(info_.kind);
    figures_.transports[across] = name;
    figures_.paths[across] = communicator->verified_path();
    for (const PairRow& row : time_pairs(job_, *device_, *communicator, amounts.message, most_rounds)) {
      const int partner = ranks[static_cast<std::size_t>(row.partner)];
      if (row.wrong > 0)
        throw SystemError("a message from rank " + std::to_string(partner) + " to rank " + std::to_string(job_.rank()) +
                          " over " + name + " (" + communicator->verified_path() + ") arrived with " + std::to_string(row.wrong) +
                          " wrong elements");
      pairs_.push_back({std::min(partner, job_.rank()), std::max(partner, job_.rank()), across, row.rate});
    }
    const TransportLinks* const known = figures_.base.find_transport(name);
    const std::optional<LinkRates> own = known == nullptr ? std::nullopt : across ? known->network : known->node;
    const LinkRates& base = own ? *own : across ? figures_.base.network : figures_.base.node;
    const LinkRates links = consist::launch::measure_links(job_, *device_, *communicator, amounts.collective, base);
    if (!across) return take_links(figures_.measured, name, figures_.measured.node = links);
    figures_.measured.network = links;
    for (TransportLinks& of : figures_.measured.transports) {
      if (of.transport == name) of.network = links;
    }
  }

  std::string transport_for(bool across) {
    // One that connects hosts alone leaves links within a host to the automatic choice, as in a plan.
    if (config_.transport != automatic_transport &&
        (across || make_transport(config_.transport, config_, host_, info_.kind)->cannot_connect(info_.kind, false).empty()))
      return config_.transport;
    const AutomaticTransports automatic = agree_on_transports(job_, config_, host_, info_.kind);
    if (automatic.names[across].empty())
      throw UsageError("--transport auto: no transport connects devices of the kind '" + info_.kind + "'; name one");
    return automatic.names[across];
  }

  /// To rank 0, which then knows the medians: a slow rank is no figure of the machine.
  void gather() {
    const std::vector<std::string> texts = job_.gather("doctor/figures", json_of_parts({own_}, pairs_).dump(), job_.timeout());
    if (job_.rank() != 0) return;
    std::vector<LinkFigure> links;
    for (const std::string& text : texts) {
      std::vector<LinkFigure> seen;
      add_parts(nlohmann::json::parse(text), figures_.ranks, seen);
      for (const LinkFigure& link : seen) add(link, links);
    }
    std::sort(links.begin(), links.end(),
              [](const LinkFigure& a, const LinkFigure& b) { return std::tie(a.one, a.other) < std::tie(b.one, b.other); });
    figures_.links = std::move(links);
    const auto middle = [&](double RankFigures::*figure) {
      std::vector<double> values;
      for (const RankFigures& rank : figures_.ranks) values.push_back(rank.*figure);
      return median(std::move(values));
    };
    figures_.measured =
        with_times(std::move(figures_.measured), middle(&RankFigures::products_time), middle(&RankFigures::memory_time));
    if (job_.size() == 1) return;
    double slowest = 0;
    for (const RankFigures& rank : figures_.ranks) slowest = std::max(slowest, rank.seconds);
    figures_.measured.rank_skew = {slowest / middle(&RankFigures::seconds) - 1, FigureSource::measured_here};
  }

  /// Joins what both ends of a link have seen.
  static void add(const LinkFigure& link, std::vector<LinkFigure>& links) {
    const auto at = std::find_if(links.begin(), links.end(),
                                 [&](const LinkFigure& known) { return known.one == link.one && known.other == link.other; });
    if (at == links.end()) return links.push_back(link);
    at->rate = std::min(at->rate, link.rate);
  }

  const RunConfig config_;
  PluginHost& host_;
  JoinedJob& job_;
  const std::shared_ptr<Device> device_;
  const DeviceInfo info_;
  const MachineChoice choice_;
  std::vector<int> node_of_;  // by rank
  int nodes_ = 1;
  RankFigures own_;
  std::vector<LinkFigure> pairs_;
  ShortFigures figures_;
};

}  // namespace

ShortFigures measure_shortly(const RunConfig& config, PluginHost& host, JoinedJob& job) {
  return ShortMeasurement(config, host, job).run();
}

Machine with_times(Machine machine, double products, double memory) {
  DeviceRates& device = machine.device;
  const auto slower = [](Figure& rate, double times) {
    rate = {rate.value / times, rate.value > 0 ? FigureSource::measured_here : rate.source};
  };
  for (Figure* const peak : {&device.peak_fp32, &device.peak_tf32, &device.peak_bf16, &device.peak_fp8}) slower(*peak, products);
  slower(device.memory_rate, memory);
  for (DeviceRates::OpTimes& times : device.times) {
    for (DeviceRates::OpTimes::Point& point : times.points) point.seconds *= point.flops > 0 ? products : memory;
  }
  return machine;
}

}  // namespace consist::launch
