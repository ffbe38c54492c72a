#include "core/cost/machine_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "consist/error.h"
#include "consist/json_input.h"
#include "core/cost/file_object.h"
#include "core/cost/link_file.h"
#include "core/cost/power.h"
#include "core/cost/step_errors.h"

namespace consist {
namespace {

using Object = FileObject;
using Json = nlohmann::ordered_json;

constexpr int version = 1;

std::vector<DeviceRates::Reached> reached_from(Object& device) {
  std::vector<DeviceRates::Reached> all;
  bool everything = false;
  for (const nlohmann::json& json : device.list("reached")) {
    Object object(json, item(device.name("reached"), all.size()));
    DeviceRates::Reached reached{.op = object.text("op"), .dtype = object.text("dtype")};
    static const std::set<std::string> dtypes{"fp32", "bf16", "fp8", "*"};
    if (!dtypes.contains(reached.dtype))
      throw DataError(object.name("dtype") + " is " + shown(nlohmann::json(reached.dtype)) + "; it can be fp32, bf16, fp8 or *");
    if (object.has("flops")) reached.flops = object.number("flops", 0, true);
    reached.share = {object.number("value", 0, true), object.source()};
    if (reached.share.value > 1) throw DataError(object.name("value") + " is a share of the peak: at most 1");
    object.finish();
    everything = everything || (reached.op == "*" && reached.dtype == "*");
    all.push_back(std::move(reached));
  }
  if (!everything) throw DataError(device.name("reached") + " must say what op \"*\" reaches in dtype \"*\"");
  return all;
}

std::vector<DeviceRates::OpTimes> times_from(Object& device) {
  std::vector<DeviceRates::OpTimes> all;
  for (const nlohmann::json& json : device.list("times")) {
    Object object(json, item(device.name("times"), all.size()));
    DeviceRates::OpTimes times{.op = object.text("op"), .points = {}, .source = object.source()};
    const std::string dtype = object.text("dtype");
    if (const std::optional<DType> known = dtype_of(dtype)) {
      times.dtype = *known;
    } else {
      throw DataError(object.name("dtype") + " is " + shown(nlohmann::json(dtype)) + "; it must be a dtype such as bf16 or f32");
    }
    if (object.has("depth")) times.depth = object.whole("depth", 0);
    for (const DeviceRates::OpTimes& other : all) {
      if (other.op == times.op && other.dtype == times.dtype && other.depth == times.depth)
        throw DataError(object.name("op") + ": " + times.op + " in " + dtype + " stands in the list twice");
    }
    std::set<std::pair<double, double>> costs;
    for (const nlohmann::json& point : object.list("points")) {
      const std::string where = item(object.name("points"), times.points.size());
      if (!point.is_array() || point.size() < 3 || point.size() > 5 ||
          !std::all_of(
              point.begin(), point.end(),
              [](const nlohmann::json& n) { return n.is_number() && n.get<double>() >= 0 && is_figure(n.get<double>()); }) ||
          !(point[2].get<double>() > 0))
        throw DataError(where + " must be FLOPs, bytes and seconds above 0, perhaps load and scratch, each 0 or " +
                        figure_bounds + ", not " + shown(point));
      times.points.push_back(
          {.flops = point[0].get<double>(), .bytes = point[1].get<double>(), .seconds = point[2].get<double>()});
      if (point.size() > 3) times.points.back().load = point[3].get<double>();
      if (point.size() > 4) times.points.back().scratch = point[4].get<double>();
      if (!costs.emplace(times.points.back().flops, times.points.back().bytes).second)
        throw DataError(where + " has the FLOPs and bytes of one before it: " + shown(point));
    }
    if (times.points.empty()) throw DataError(object.name("points") + " is empty");
    if (object.has("demand")) times.demand = object.number("demand", 0);
    object.finish();
    all.push_back(std::move(times));
  }
  return all;
}

DeviceRates device_from(Object device) {
  DeviceRates rates;
  Object peak = device.object("peak");
  rates.peak_fp32 = peak.figure("fp32", 0, true);
  rates.peak_tf32 = peak.figure("tf32", 0);
  rates.peak_bf16 = peak.figure("bf16", 0, true);
  rates.peak_fp8 = peak.figure("fp8", 0);
  peak.finish();
  rates.reached = reached_from(device);
  if (device.has("times")) rates.times = times_from(device);
  rates.sustained_clock = device.share("sustained_clock");
  rates.memory_bytes = device.figure("memory_bytes", 0);
  rates.memory_rate = device.figure("memory_rate", 0, true);
  rates.kernel_seconds = device.figure("kernel_seconds", 0);
  rates.launch_seconds = device.figure("launch_seconds", 0);
  if (device.has("chunk_bytes")) rates.chunk_bytes = device.figure("chunk_bytes", 0);
  if (device.has("throttling")) {
    Object throttling = device.object("throttling");
    rates.throttling.lag = throttling.figure("lag", 0);
    rates.throttling.memory_bound = throttling.figure("memory_bound", 0);
    throttling.finish();
  }
  device.finish();
  return rates;
}

}  // namespace

std::string_view name_of(FigureSource source) noexcept {
  switch (source) {
    case FigureSource::data_sheet:
      return "data sheet";
    case FigureSource::measured:
      return "measured on such a machine";
    case FigureSource::measured_here:
      return "measured here";
    case FigureSource::given:
      return "given";
  }
  return "";
}

Machine machine_from_json(std::string_view text, const std::string& name) {
  const nlohmann::json json = parse_json(text, name, {.repeated = JsonRules::Repeated::refused, .comments = true});
  Object object(json, name);
  if (const double written = object.number("version", 1); written != version)
    throw DataError(object.name("version") + " is " + shown(json["version"]) + "; this program reads version " +
                    std::to_string(version));
  Machine machine;
  machine.name = object.text("name");
  machine.device_kind = object.text("device_kind");
  for (const nlohmann::json& device : object.list("devices")) {
    if (!device.is_string()) throw DataError(object.name("devices") + " must be a list of texts, not of " + shown(device));
    machine.devices.push_back(device.get<std::string>());
  }
  machine.ranks_per_node = object.whole("ranks_per_node", 1);
  machine.device = device_from(object.object("device"));
  machine.node = links_from(object.object("node"));
  machine.network = links_from(object.object("network"));
  if (object.has("transports")) machine.transports = transports_from(object.object("transports"), machine);
  machine.host_alone = object.figure("host_alone", 0, true);
  machine.host_shared = object.figure("host_shared", 0, true);
  if (object.has("host_shared_ranks")) machine.host_shared_ranks = object.whole("host_shared_ranks", 0);
  if (object.has("host_both")) machine.host_both = object.share("host_both");
  if (object.has("rank_skew")) machine.rank_skew = object.figure("rank_skew", 0);
  machine.step_error = error_of_device(step_errors_from(object));
  if (object.has("power")) power_from(object.object("power"));  // which is no part of a Machine: power.h
  object.finish();
  return machine;
}

std::string to_json(const Machine& machine, const Power& power, const StepErrors& errors) {
  const DeviceRates& d = machine.device;
  Json reached = Json::array();
  for (const DeviceRates::Reached& r : d.reached) {
    Json one{{"op", r.op}, {"dtype", r.dtype}};
    if (r.flops > 0) one["flops"] = r.flops;
    one["value"] = r.share.value;
    one["source"] = name_of(r.share.source);
    reached.push_back(one);
  }
  Json times = Json::array();
  for (const DeviceRates::OpTimes& of_op : d.times) {
    Json points = Json::array();
    for (const DeviceRates::OpTimes::Point& p : of_op.points) points.push_back({p.flops, p.bytes, p.seconds, p.load, p.scratch});
    Json one{{"op", of_op.op}, {"dtype", name_of(of_op.dtype)}};
    if (of_op.depth > 0) one["depth"] = of_op.depth;
    one.update({{"source", name_of(of_op.source)}, {"demand", of_op.demand}, {"points", points}});
    times.push_back(std::move(one));
  }
  Json json{{"version", version},
            {"name", machine.name},
            {"device_kind", machine.device_kind},
            {"devices", machine.devices},
            {"ranks_per_node", machine.ranks_per_node},
            {"device",
             {{"peak",
               {{"fp32", json_of(d.peak_fp32)},
                {"tf32", json_of(d.peak_tf32)},
                {"bf16", json_of(d.peak_bf16)},
                {"fp8", json_of(d.peak_fp8)}}},
              {"reached", reached},
              {"sustained_clock", json_of(d.sustained_clock)},
              {"memory_bytes", json_of(d.memory_bytes)},
              {"memory_rate", json_of(d.memory_rate)},
              {"kernel_seconds", json_of(d.kernel_seconds)},
              {"launch_seconds", json_of(d.launch_seconds)},
              {"chunk_bytes", json_of(d.chunk_bytes)},
              {"throttling", {{"lag", json_of(d.throttling.lag)}, {"memory_bound", json_of(d.throttling.memory_bound)}}}}},
            {"node", json_of(machine.node)},
            {"network", json_of(machine.network)},
            {"host_alone", json_of(machine.host_alone)},
            {"host_shared", json_of(machine.host_shared)},
            {"host_shared_ranks", machine.host_shared_ranks},
            {"host_both", json_of(machine.host_both)},
            {"rank_skew", json_of(machine.rank_skew)},
            {"step_errors", json_of(errors)}};
  if (errors.empty() && machine.step_error.value > 0)
    json["step_errors"] = json_of(StepErrors{{std::string(one_device), machine.step_error, least_measured_steps}});
  if (!times.empty()) json["device"]["times"] = times;
  if (!machine.transports.empty()) json["transports"] = json_of(machine.transports);
  if (power.is_known()) json["power"] = json_of(power);
  return json.dump(2) + "\n";
}

const std::vector<Machine>& known_machines() {
  static const std::vector<Machine> machines = [] {
    std::vector<Machine> all;
    for (const MachineText& file : machine_texts()) all.push_back(machine_from_json(file.text, file.name));
    return all;
  }();
  return machines;
}

const Machine* find_machine(std::string_view name) {
  for (const Machine& machine : known_machines()) {
    if (machine.name == name) return &machine;
  }
  return nullptr;
}

const Machine* find_machine_of_device(std::string_view device_kind, std::string_view device_name) {
  for (const Machine& machine : known_machines()) {
    const auto& names = machine.devices;
    const bool any = names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
                       return device_name.find(name) != std::string_view::npos;
                     });
    if (machine.device_kind == device_kind && any) return &machine;
  }
  return nullptr;
}

}  // namespace consist
