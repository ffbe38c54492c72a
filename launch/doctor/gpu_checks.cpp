// GPUs that are there but do not work as they could.
#include <algorithm>
#include <functional>
#include <optional>

#include "consist/text.h"
#include "launch/doctor/check.h"
#include "launch/doctor/facts.h"
#include "launch/doctor/words.h"

namespace consist::doctor {
namespace {

/// Says what is the matter with a GPU: nothing if it is well, and no text if it does not tell.
using Complaint = std::optional<std::string> (*)(const Gpu& gpu);

/// Asks all GPUs for their complaint.
Finding of_each_gpu(const Facts& facts, Complaint complaint, const char* well, Status status, const char* remedy) {
  if (const std::optional<Finding> none = without_listed_gpus(facts)) return *none;
  std::string list;
  bool told = false;
  for (const Gpu& gpu : facts.gpus.listed) {
    const std::optional<std::string> said = complaint(gpu);
    told = told || said.has_value();
    if (said && !said->empty()) append(list, "GPU " + std::to_string(gpu.index) + " " + *said);
  }
  if (!told) return not_applicable("these GPUs do not tell");
  return list.empty() ? ok(well) : Finding{status, list, remedy};
}

std::optional<std::string> ecc_complaint(const Gpu& gpu) {
  if (!gpu.ecc_errors) return std::nullopt;
  return *gpu.ecc_errors == 0 ? ""
                              : "has " + number_of(static_cast<int>(*gpu.ecc_errors), "uncorrected error") + " of its memory";
}

Finding no_ecc_error(const Facts& facts) {
  return of_each_gpu(
      facts, ecc_complaint, "no uncorrected error since the driver was loaded", Status::wrong,
      "reset the GPU (nvidia-smi --gpu-reset -i N) or reboot; if errors come back, have it replaced (nvidia-smi -q -d "
      "ECC,ROW_REMAPPER)");
}

/// Reasons of NVML that hold a GPU down which has nothing to do.
constexpr struct {
  std::uint64_t bit;
  const char* text;
} faults_of_hardware[] = {
    {0x08, "hardware slowdown"}, {0x20, "temperature (software)"}, {0x40, "temperature (hardware)"}, {0x80, "power brake"}};

std::optional<std::string> throttle_complaint(const Gpu& gpu) {
  if (!gpu.throttle_reasons) return std::nullopt;
  std::string reasons;
  for (const auto& [bit, text] : faults_of_hardware) {
    if ((*gpu.throttle_reasons & bit) != 0) reasons += (reasons.empty() ? "" : ", ") + std::string(text);
  }
  return reasons.empty() ? "" : "is slowed down: " + reasons;
}

Finding not_throttled(const Facts& facts) {
  return of_each_gpu(facts, throttle_complaint, "no reason to slow down is active", Status::wrong,
                     "look at cooling and power supplies (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER)");
}

std::optional<std::string> power_complaint(const Gpu& gpu) {
  if (!gpu.power_limit || !gpu.usual_power) return std::nullopt;
  return *gpu.power_limit >= *gpu.usual_power - 0.5
             ? ""
             : "is limited to " + fixed_text(*gpu.power_limit, 0) + " W of " + fixed_text(*gpu.usual_power, 0) + " W";
}

Finding full_power(const Facts& facts) {
  return of_each_gpu(facts, power_complaint, "at their default", Status::warning,
                     "raise it, unless the power of the rack is meant to be limited (as root: nvidia-smi -pl WATTS)");
}

std::optional<std::string> persistence_complaint(const Gpu& gpu) {
  if (!gpu.persistent) return std::nullopt;
  return *gpu.persistent ? "" : "has it off";
}

Finding persistent(const Facts& facts) {
  return of_each_gpu(
      facts, persistence_complaint, "on", Status::warning,
      "turn it on (as root: nvidia-smi -pm 1, or the service nvidia-persistenced): else a start waits for the driver");
}

std::optional<std::string> mig_complaint(const Gpu& gpu) {
  if (!gpu.mig) return std::nullopt;
  return *gpu.mig ? "has it on" : "";
}

Finding undivided(const Facts& facts) {
  return of_each_gpu(
      facts, mig_complaint, "off", Status::warning,
      "turn it off for whole GPUs (as root: nvidia-smi -i N -mig 0): a rank sees one slice, and slices have no NVLink");
}

std::optional<std::string> pcie_complaint(const Gpu& gpu) {
  if (!gpu.pcie_width || !gpu.most_pcie_width) return std::nullopt;
  std::string text;
  if (*gpu.pcie_width < *gpu.most_pcie_width)
    text = std::to_string(*gpu.pcie_width) + " of " + std::to_string(*gpu.most_pcie_width) + " lanes";
  // A GPU that sleeps lowers its generation by itself.
  const bool awake = gpu.performance_state == "P0";
  if (awake && gpu.pcie_generation && gpu.most_pcie_generation && *gpu.pcie_generation < *gpu.most_pcie_generation)
    text += (text.empty() ? "" : ", ") + std::string("generation ") + std::to_string(*gpu.pcie_generation) + " of " +
            std::to_string(*gpu.most_pcie_generation);
  return text.empty() ? "" : "has " + text;
}

Finding whole_pcie(const Facts& facts) {
  return of_each_gpu(
      facts, pcie_complaint, "all lanes", Status::wrong,
      "reseat the card or riser, and look at the firmware's setting of the slot (nvidia-smi -q -d PCIE; lspci -vv)");
}

using Property = std::optional<double> (*)(const Gpu& gpu);

/// GPUs that have less of something than others of their kind.
void compare_gpus(const std::vector<Gpu>& gpus, const char* name, const char* unit, Property property, std::string& list) {
  for (const Gpu& gpu : gpus) {
    std::optional<double> most;
    for (const Gpu& other : gpus) {
      if (other.name == gpu.name && property(other)) most = std::max(most.value_or(0), *property(other));
    }
    if (most && property(gpu) && *property(gpu) < *most - 0.5)
      append(list, "GPU " + std::to_string(gpu.index) + " has " + name + " of " + fixed_text(*property(gpu), 0) + " " + unit +
                       ", others of its kind " + fixed_text(*most, 0) + " " + unit);
  }
}

Finding alike(const Facts& facts) {
  const std::vector<Gpu>& gpus = facts.gpus.listed;
  if (const std::optional<Finding> none = without_listed_gpus(facts)) return *none;
  if (gpus.size() == 1) return not_applicable("there is one GPU");
  std::string list;
  compare_gpus(
      gpus, "a clock limit", "MHz", [](const Gpu& gpu) { return gpu.most_clock; }, list);
  compare_gpus(
      gpus, "an application clock", "MHz", [](const Gpu& gpu) { return gpu.asked_clock; }, list);
  compare_gpus(
      gpus, "a power limit", "W", [](const Gpu& gpu) { return gpu.power_limit; }, list);
  for (const Gpu& gpu : gpus) {
    if (gpu.name != gpus[0].name)
      append(list, "GPU " + std::to_string(gpu.index) + " is " + gpu.name + ", GPU 0 is " + gpus[0].name);
  }
  if (list.empty()) return ok("same kind, clocks and power limits");
  return warning(list,
                 "the slowest sets the pace of all: give them the same clocks and limits (as root: nvidia-smi -rgc; -rac; -pl "
                 "WATTS)");
}

/// The most that a GPU of that kind has.
template <typename Value>
Value most_of_kind(const std::vector<Gpu>& gpus, const std::string& kind, Value (*value)(const Gpu& gpu)) {
  Value most{};
  for (const Gpu& gpu : gpus) {
    if (gpu.name == kind) most = std::max(most, value(gpu));
  }
  return most;
}

Finding whole_nvlink(const Facts& facts) {
  const std::vector<Gpu>& gpus = facts.gpus.listed;
  if (const std::optional<Finding> none = without_listed_gpus(facts)) return *none;
  if (gpus.size() == 1) return not_applicable("there is one GPU");
  std::string list;
  int most_links = 0;
  Status status = Status::warning;  // a GPU without any may have no bridge to others
  for (const Gpu& gpu : gpus) {
    const int links = most_of_kind<int>(gpus, gpu.name, [](const Gpu& one) { return one.nvlinks.value_or(0); });
    const double rate = most_of_kind<double>(gpus, gpu.name, [](const Gpu& one) { return one.nvlink_rate; });
    most_links = std::max(most_links, links);
    const int own = gpu.nvlinks.value_or(0);
    const std::string name = "GPU " + std::to_string(gpu.index);
    if (own < links)
      append(list, name + " has " + std::to_string(own) + " active links, others of its kind " + std::to_string(links));
    if (own > 0 && gpu.nvlink_rate < rate)
      append(list, name + " has a link of " + fixed_text(gpu.nvlink_rate, 1) + " GB/s, others of its kind " +
                       fixed_text(rate, 1) + " GB/s");
    if (own > 0 && (own < links || gpu.nvlink_rate < rate)) status = Status::wrong;
  }
  if (most_links == 0) return not_applicable("these GPUs have no active NVLink, or do not tell");
  if (list.empty()) return ok(number_of(most_links, "active link") + " each");
  return {status, list,
          "look for errors of links (nvidia-smi nvlink -e, Xid 74 in dmesg) and at the fabric manager (systemctl status "
          "nvidia-fabricmanager); reset all GPUs or reboot"};
}

constexpr Check gpu_table[] = {
    {"gpus", "gpu-ecc", "no GPU has uncorrected memory errors", no_ecc_error},
    {"gpus", "gpu-throttling", "heat and power supply slow no GPU down", not_throttled},
    {"gpus", "gpu-power", "the power limit of each GPU is its default", full_power},
    {"gpus", "gpu-alike", "GPUs are of one kind, with the same clocks and limits", alike},
    {"gpus", "gpu-persistence", "persistence mode is on", persistent},
    {"gpus", "gpu-pcie", "each GPU has all its PCIe lanes, at their generation", whole_pcie},
    {"gpus", "gpu-nvlink", "GPUs of one kind have as many active NVLinks, of one rate", whole_nvlink},
    {"gpus", "gpu-mig", "MIG is off", undivided},
};

}  // namespace

std::span<const Check> gpu_checks() {
  return gpu_table;
}

}  // namespace consist::doctor
