#include "core/plan/machine_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "core/base/did_you_mean.h"
#include "core/base/quantity_text.h"
#include "core/compile/compile.h"
#include "core/cost/file_object.h"
#include "core/cost/machine_file.h"
#include "core/cost/step_errors.h"

namespace consist {
namespace {

double positive(const std::string& part, const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !(number > 0) || !std::isfinite(number))
    throw UsageError("--machine: '" + part + "' must be a number above 0, such as network=12.5e9");
  if (!is_figure(number)) throw UsageError("--machine: '" + part + "': a figure of a machine is " + figure_bounds);
  return number;
}

/// One op's share, whatever the dtype and the size; also in place of measured times.
void set_share(Machine& machine, const std::string& op, double value) {
  std::erase_if(machine.device.times, [&](const DeviceRates::OpTimes& times) {
    const bool computes =
        std::any_of(times.points.begin(), times.points.end(), [](const auto& point) { return point.flops > 0; });
    return op == "*" ? computes && !times.op.starts_with("attention") : times.op == op;
  });
  std::erase_if(machine.device.reached, [&](const DeviceRates::Reached& reached) { return reached.op == op; });
  machine.device.reached.push_back({.op = op, .dtype = "*", .share = {value, FigureSource::given}});
}

/// One rate for all collectives and messages of any size.
void set_rate(LinkRates& links, double rate) {
  const auto rest = std::find_if(links.curves.begin(), links.curves.end(), [](const auto& curve) { return curve.op == "*"; });
  LinkRates::Curve curve = *rest;
  // Far beyond the latency, so that it is the rate of what is large.
  curve.rates = {{std::max(curve.rates.back().bytes, 1e3 * curve.latency * rate), rate}};
  curve.source = FigureSource::given;
  links.curves = {curve};
}

/// Links within a node or to others, of whichever transport.
void set_rate_of_all(Machine& machine, bool within_node, double rate) {
  set_rate(within_node ? machine.node : machine.network, rate);
  for (TransportLinks& links : machine.transports) {
    if (std::optional<LinkRates>& own = within_node ? links.node : links.network) set_rate(*own, rate);
  }
}

/// Sets the rate of `TRANSPORT-node` or `TRANSPORT-network`, a transport that the file need not know. False for any other key.
bool set_rate_of_transport(Machine& machine, const std::string& key, double rate) {
  const std::size_t dash = key.rfind('-');
  const std::string where = dash == std::string::npos ? "" : key.substr(dash + 1), transport = key.substr(0, dash);
  if (transport.empty() || key == "ranks-per-node" || (where != "node" && where != "network")) return false;
  auto links = std::find_if(machine.transports.begin(), machine.transports.end(),
                            [&](const TransportLinks& known) { return known.transport == transport; });
  if (links == machine.transports.end()) {
    std::vector<KnownName> names;
    for (const TransportLinks& known : machine.transports) names.push_back({known.transport});
    if (const std::string similar = did_you_mean(transport, names); !similar.empty())
      throw UsageError("--machine: '" + key + "' is for a transport '" + transport + "', which the file does not know." +
                       similar);
    links = machine.transports.insert(links, TransportLinks{transport, {}, {}});
  }
  std::optional<LinkRates>& own = where == "node" ? links->node : links->network;
  if (!own) own = where == "node" ? machine.node : machine.network;
  set_rate(*own, rate);
  return true;
}

/// Contents of a machine's file.
struct MachineFile {
  Machine machine;
  Power power;
  StepErrors errors;
};

/// Forgets the errors of steps whose time depends on a figure that is not the one they were predicted with.
void forget_errors(MachineFile& file, const std::string& key) {
  static const std::set<std::string> of_no_time{"capacity", "ranks-per-node", "power", "power-limit", "idle-power"};
  if (of_no_time.contains(key)) return;
  const bool network = key.ends_with("network"), links = network || key.ends_with("node");
  const std::size_t dash = key.rfind('-');
  std::erase_if(file.errors, [&](const StepError& error) {
    if (key == "host" || key == "host-alone") return error.kind == "offload";
    if (!links) return true;  // the device's, which every step has
    return dash == std::string::npos ? is_links_kind(error.kind, network)
                                     : error.kind == links_kind(key.substr(0, dash), network);
  });
  file.machine.step_error = error_of_device(file.errors);
}

void replace(MachineFile& file, const std::string& part) {
  Machine& machine = file.machine;
  const std::size_t equals = part.find('=');
  const std::string key = part.substr(0, equals);
  forget_errors(file, key);
  const struct {
    const char* key;
    Figure* figure;
  } figures[] = {{"peak", &machine.device.peak_bf16},
                 {"peak-fp8", &machine.device.peak_fp8},
                 {"peak-fp32", &machine.device.peak_fp32},
                 {"memory", &machine.device.memory_rate},
                 {"capacity", &machine.device.memory_bytes},
                 {"host", &machine.host_shared},
                 {"host-alone", &machine.host_alone},
                 {"power-limit", &file.power.limit},
                 {"idle-power", &file.power.idle}};
  std::string known = "ranks-per-node products attention attention-grad node network TRANSPORT-node TRANSPORT-network power";
  for (const auto& figure : figures) known += std::string(" ") + figure.key;
  const double number = positive(part, equals == std::string::npos ? "" : part.substr(equals + 1));
  for (const auto& figure : figures) {
    if (key != figure.key) continue;
    *figure.figure = {number, FigureSource::given};
    return;
  }
  if (key == "node" || key == "network") {
    set_rate_of_all(machine, key == "node", number);
  } else if ((key == "products" || key == "attention" || key == "attention-grad") && number <= 1) {
    set_share(machine, key == "products" ? "*" : key == "attention" ? "attention" : "attention_grad", number);
  } else if (key == "ranks-per-node" && number == std::floor(number) && number <= 1e6) {
    machine.ranks_per_node = static_cast<int>(number);
  } else if (key == "power") {
    file.power.loads = {{"*", {number, FigureSource::given}}};  // of all kinds of work
  } else if (set_rate_of_transport(machine, key, number)) {
    return;
  } else {
    throw UsageError(
        "--machine: '" + part + "' is not known; values can be given to: " + known +
        " (products and attention: shares of the peak, up to 1; TRANSPORT: the name of a plugin, as in socket-node)");
  }
}

/// Returns the file's text of a machine that ships with Consist.
std::string text_of_known(const Machine& known) {
  return machine_texts().at(static_cast<std::size_t>(&known - known_machines().data())).text;
}

std::string names_of_known() {
  std::string names;
  for (const Machine& known : known_machines()) names += " " + known.name;
  return names;
}

double share_of(const Machine& machine, const std::string& op) {
  const DeviceRates::Reached* found = nullptr;
  for (const DeviceRates::Reached& reached : machine.device.reached) {
    const bool fits = (reached.op == op || reached.op == "*") && (reached.dtype == "bf16" || reached.dtype == "*");
    const auto rank = [&](const DeviceRates::Reached& r) { return 2 * (r.op == op) + (r.dtype == "bf16"); };
    if (fits && (found == nullptr || rank(reached) > rank(*found))) found = &reached;
  }
  return found == nullptr ? 0 : found->share.value;
}

/// Returns the rate of large messages, in bytes per second.
double rate_of(const LinkRates& links) {
  return std::find_if(links.curves.begin(), links.curves.end(), [](const auto& curve) { return curve.op == "*"; })
      ->rates.back()
      .rate;
}

/// "; over socket 3.7 GB/s in a node, 1.3 GB/s to others": of transports whose rates are not those of the machine.
std::string transports_text(const Machine& machine) {
  std::string text;
  for (const TransportLinks& links : machine.transports) {
    const auto rate = [](const std::optional<LinkRates>& own) { return own ? si_text(rate_of(*own)) + "B/s" : "-"; };
    const bool as_machine = (!links.node || rate_of(*links.node) == rate_of(machine.node)) &&
                            (!links.network || rate_of(*links.network) == rate_of(machine.network));
    if (!as_machine)
      text += "; over " + links.transport + " " + rate(links.node) + " in a node, " + rate(links.network) + " to others";
  }
  return text;
}

MachineFile parse_file(const std::string& text) {
  std::istringstream parts(text);
  std::string part;
  std::getline(parts, part, ',');
  const Machine* known = find_machine(part);
  const bool is_file = part.ends_with(".json") || part.find('/') != std::string::npos;
  if (known == nullptr && !is_file)
    throw UsageError("--machine '" + text + "' begins with no machine that is known here:" + names_of_known() +
                     ", or a file (machine.json)");
  MachineFile file;
  if (known != nullptr) {
    const std::string json = text_of_known(*known);
    file = {*known, power_from_json(json, known->name), step_errors_from_json(json, known->name)};
  } else {
    const std::string json = read_text(part, JsonRules().most_bytes);
    file = {machine_from_json(json, part), power_from_json(json, part), step_errors_from_json(json, part)};
  }
  while (std::getline(parts, part, ',')) replace(file, part);
  if (!file.power.loads.empty() && file.power.idle.value == 0) {
    throw UsageError("--machine '" + text +
                     "' says what a device draws under load (power), and not what one draws that waits: add idle-power=W");
  }
  return file;
}

}  // namespace

Machine parse_machine(const std::string& text) {
  return parse_file(text).machine;
}

std::shared_ptr<const Machine> machine_named(const std::string& text) {
  return text.empty() ? reference_machine() : std::make_shared<const Machine>(parse_machine(text));
}

Power power_named(const std::string& text) {
  return parse_file(text.empty() ? reference_machine()->name : text).power;
}

StepErrors step_errors_for(const std::string& named, const Machine& machine) {
  static std::mutex mutex;
  static std::map<std::string, StepErrors> known;  // a search asks for each of its predictions
  const bool ships = machine.step_error.value > 0 && find_machine(machine.name) != nullptr;
  const std::string text = !named.empty() ? named : ships ? machine.name : "";
  if (text.empty()) return {};
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(text);
  if (is_new) entry->second = parse_file(text).errors;
  return entry->second;
}

std::string text_of(const Machine& machine) {
  const DeviceRates& d = machine.device;
  const std::string capacity = d.memory_bytes.value > 0
                                   ? bytes_text(static_cast<std::int64_t>(d.memory_bytes.value)) + " of memory"
                                   : "memory of unknown size";
  return machine.name + ", " + std::to_string(machine.ranks_per_node) + " ranks a node; products at " +
         percent_text(share_of(machine, "*")) + ", attention at " + percent_text(share_of(machine, "attention")) +
         " and its gradient at " + percent_text(share_of(machine, "attention_grad")) + " of " + si_text(d.peak_bf16.value) +
         "FLOP/s (fp8 " + si_text(d.peak_fp8.value) + ", fp32 " + si_text(d.peak_fp32.value) + "); a rank has " + capacity +
         ", moves " + si_text(d.memory_rate.value) + "B/s in it, " + si_text(rate_of(machine.node)) +
         "B/s to ranks of its node, " + si_text(rate_of(machine.network)) + "B/s to others, " +
         si_text(machine.host_shared.value) + "B/s from and to the host" + transports_text(machine);
}

MachineChoice machine_for(const DeviceInfo& device) {
  if (const Machine* known = find_machine_of_device(device.kind, device.name)) return {*known, "", "the device's"};
  const bool kind_is_known = std::any_of(known_machines().begin(), known_machines().end(),
                                         [&](const Machine& machine) { return machine.device_kind == device.kind; });
  const Machine* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Machine& machine : known_machines()) {
    if (kind_is_known && machine.device_kind != device.kind) continue;
    const double has = machine.device.memory_bytes.value;
    const double distance = has > 0 && device.memory_bytes > 0
                                ? std::abs(std::log(has / static_cast<double>(device.memory_bytes)))
                                : std::numeric_limits<double>::max();
    if (distance < least) {
      least = distance;
      nearest = &machine;
    }
  }
  Machine machine = *nearest;
  machine.step_error = {};  // of other devices
  return {std::move(machine),
          "no machine is known for the device '" + device.name + "': the run is planned as for '" + nearest->name +
              "', the nearest by the size of its memory; --machine names another, or a file (docs/machines.md)",
          "the nearest to the device's"};
}

MachineChoice agree_on_machine(Job& job, const DeviceInfo& device, const std::string& named) {
  constexpr const char* name = "plan.machine";
  if (job.rank() != 0) return {machine_from_json(job.broadcast(name, "", job.timeout()), "rank 0's machine"), "", ""};
  MachineChoice choice = named.empty() ? machine_for(device) : MachineChoice{parse_machine(named), "", "--machine " + named};
  choice.machine.ranks_per_node = job.local_size();
  job.broadcast(name, to_json(choice.machine), job.timeout());
  return choice;
}

}  // namespace consist
