#include "core/runtime/machine_model.h"

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "consist/error.h"
#include "core/runtime/text.h"

namespace consist {
namespace {

constexpr double mebi = 1024.0 * 1024.0;
/// What the driver calls free on an idle GPU, without what the cuda device leaves to libraries.
constexpr double usable(double free_mebibytes) {
  return (free_mebibytes - 1024) * mebi;
}

/// Peaks, memory's rate and links by NVIDIA's and AWS's data sheets (p4d, p5, p5e). Capacities are what the driver (580.159)
/// called free on idle GPUs, 2026-11-22; the A100's is its data sheet's. Node (0.72) and host are what four H200s reached
/// here (docs/results.md), memory of the others is as far from its sheet's as theirs; a network rank has an eighth of its node's
/// EFA, of which large messages are taken to reach 0.85.
const std::vector<MachineModel>& known_machines() {
  static const std::vector<MachineModel> machines = [] {
    const MachineModel h200{.name = "h200",
                            .device = h200_rates,
                            .capacity = usable(143'156),
                            .node = h200_link_rate,
                            .network = 0.85 * 50e9,
                            .host = 17e9};
    MachineModel h100 = h200;  // but for its memory
    h100.name = "h100";
    h100.device.memory = 0.87 * 3.35e12;
    h100.capacity = usable(81'079);
    const MachineModel a100{.name = "a100",
                            .device = {.peak = 312e12, .peak_fp8 = 0, .peak_fp32 = 19.5e12, .memory = 0.87 * 1.555e12},
                            .capacity = usable(40e9 / mebi),
                            .node = 0.72 * 300e9,
                            .network = 0.85 * 6.25e9,
                            .host = 8e9};
    return std::vector<MachineModel>{h200, h100, a100};
  }();
  return machines;
}

double positive(const std::string& part, const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !(number > 0) || !std::isfinite(number))
    throw UsageError("--machine: '" + part + "' must be a number above 0, such as network=12.5e9");
  return number;
}

void replace(MachineModel& machine, const std::string& part) {
  const std::size_t equals = part.find('=');
  const std::string key = part.substr(0, equals);
  const struct {
    const char* key;
    double* value;
  } rates[] = {{"peak", &machine.device.peak},
               {"peak-fp8", &machine.device.peak_fp8},
               {"peak-fp32", &machine.device.peak_fp32},
               {"products", &machine.device.products},
               {"attention", &machine.device.attention},
               {"attention-grad", &machine.device.attention_grad},
               {"memory", &machine.device.memory},
               {"capacity", &machine.capacity},
               {"node", &machine.node},
               {"network", &machine.network},
               {"host", &machine.host}};
  std::string known = "ranks-per-node";
  for (const auto& rate : rates) known += std::string(" ") + rate.key;
  const double number = positive(part, equals == std::string::npos ? "" : part.substr(equals + 1));
  for (const auto& rate : rates) {
    if (key == rate.key) {
      *rate.value = number;
      return;
    }
  }
  if (key != "ranks-per-node" || number != std::floor(number) || number > 1e6)
    throw UsageError("--machine: '" + part + "' is not known; values can be given to: " + known);
  machine.ranks_per_node = static_cast<int>(number);
}

}  // namespace

std::string MachineModel::text() const {
  const auto share = [](double of_peak) { return fixed_text(100 * of_peak, 0) + "%"; };
  return name + ", " + std::to_string(ranks_per_node) + " ranks a node; products at " + share(device.products) +
         ", attention at " + share(device.attention) + " and its gradient at " + share(device.attention_grad) + " of " +
         si_text(device.peak) + "FLOP/s (fp8 " + si_text(device.peak_fp8) + ", fp32 " + si_text(device.peak_fp32) +
         "); a rank has " + bytes_text(static_cast<std::int64_t>(capacity)) + " of memory, moves " + si_text(device.memory) +
         "B/s in it, " + si_text(node) + "B/s to ranks of its node, " + si_text(network) + "B/s to others, " + si_text(host) +
         "B/s from and to the host";
}

MachineModel parse_machine(const std::string& text) {
  std::istringstream parts(text);
  std::string part;
  std::getline(parts, part, ',');
  std::string names;
  for (const MachineModel& known : known_machines()) {
    names += " " + known.name;
    if (known.name != part) continue;
    MachineModel machine = known;
    while (std::getline(parts, part, ',')) replace(machine, part);
    return machine;
  }
  throw UsageError("--machine '" + text + "' begins with no machine that is known here:" + names);
}

}  // namespace consist
