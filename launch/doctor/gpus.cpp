#include "launch/doctor/gpus.h"

#include <sys/wait.h>

#include <algorithm>

#include "core/base/number.h"
#include "core/base/one_line.h"
#include "core/base/split.h"

namespace consist::doctor {
namespace {

/// Columns of the table that is asked for; the last has had two names.
constexpr const char* columns =
    "index,uuid,name,driver_version,pstate,persistence_mode,mig.mode.current,ecc.errors.uncorrected.volatile.total,power.limit,"
    "power.default_limit,clocks.max.sm,clocks.applications.graphics,pcie.link.gen.current,pcie.link.gen.max,"
    "pcie.link.width.current,pcie.link.width.max,";
constexpr const char* names_of_reasons[] = {"clocks_event_reasons.active", "clocks_throttle_reasons.active"};
constexpr std::size_t column_count = 17;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

template <typename T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  return parse_number(text, value) ? std::optional<T>(value) : std::nullopt;
}

std::optional<bool> switch_in(std::string_view text) {
  if (text == "Enabled") return true;
  if (text == "Disabled") return false;
  return std::nullopt;
}

std::optional<std::uint64_t> bits_in(std::string_view text) {
  std::uint64_t value = 0;
  return text.starts_with("0x") && parse_number(text.substr(2), value, 16) ? std::optional(value) : std::nullopt;
}

std::optional<Gpu> gpu_of(std::string_view line) {
  std::vector<std::string_view> words = split(line, ',');
  if (words.size() != column_count) return std::nullopt;
  for (std::string_view& word : words) word = trimmed(word);
  const std::optional<int> index = number_in<int>(words[0]);
  if (!index) return std::nullopt;
  return Gpu{.index = *index,
             .uuid = std::string(words[1]),
             .name = one_line(words[2]),
             .driver = one_line(words[3]),
             .performance_state = std::string(words[4]),
             .persistent = switch_in(words[5]),
             .mig = switch_in(words[6]),
             .ecc_errors = number_in<std::int64_t>(words[7]),
             .throttle_reasons = bits_in(words[16]),
             .power_limit = number_in<double>(words[8]),
             .usual_power = number_in<double>(words[9]),
             .most_clock = number_in<double>(words[10]),
             .asked_clock = number_in<double>(words[11]),
             .pcie_generation = number_in<int>(words[12]),
             .most_pcie_generation = number_in<int>(words[13]),
             .pcie_width = number_in<int>(words[14]),
             .most_pcie_width = number_in<int>(words[15])};
}

void list_gpus(const Machine& machine, Gpus& gpus) {
  std::optional<ChildOutput> output;
  for (const char* reasons : names_of_reasons) {
    output = machine.run({"nvidia-smi", std::string("--query-gpu=") + columns + reasons, "--format=csv,noheader,nounits"});
    if (!output) return;
    if (output->text.find("not a valid field") == std::string::npos) break;
  }
  gpus.has_nvidia_smi = true;
  if (!output->in_time) {
    gpus.problem = "nvidia-smi did not answer in time";
    return;
  }
  std::string_view said;  // beside the rows
  for (const std::string_view line : split(output->text, '\n')) {
    if (std::optional<Gpu> gpu = gpu_of(line)) {
      gpus.listed.push_back(std::move(*gpu));
    } else if (said.empty()) {
      said = trimmed(line);
    }
  }
  const bool succeeded = WIFEXITED(output->status) && WEXITSTATUS(output->status) == 0;
  if (succeeded && !gpus.listed.empty()) return;
  if (output->text.find("No devices were found") != std::string::npos) return;
  gpus.problem = said.empty() ? "nvidia-smi failed and said nothing" : "nvidia-smi says: " + one_line(said);
}

/// Reads "GPU 0: ..." and below it lines of "Link 3: 26.562 GB/s" or "Link 3: <inactive>".
void list_nvlinks(const Machine& machine, Gpus& gpus) {
  const std::optional<ChildOutput> output = machine.run({"nvidia-smi", "nvlink", "--status"});
  if (!output || !output->in_time || !WIFEXITED(output->status) || WEXITSTATUS(output->status) != 0) return;
  Gpu* gpu = nullptr;
  for (const std::string_view text : split(output->text, '\n')) {
    const std::string_view line = trimmed(text);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (line.starts_with("GPU ")) {
      const std::optional<int> index = number_in<int>(line.substr(4, colon - 4));
      const auto at = std::find_if(gpus.listed.begin(), gpus.listed.end(), [&](const Gpu& one) { return one.index == index; });
      gpu = at == gpus.listed.end() ? nullptr : &*at;
      if (gpu != nullptr) gpu->nvlinks = 0;
    } else if (line.starts_with("Link ") && gpu != nullptr) {
      const std::string_view said = trimmed(line.substr(colon + 1));
      const std::optional<double> rate = number_in<double>(said.substr(0, said.find(' ')));
      if (!rate) continue;
      gpu->nvlink_rate = *gpu->nvlinks == 0 ? *rate : std::min(gpu->nvlink_rate, *rate);
      ++*gpu->nvlinks;
    }
  }
}

int gpus_on_bus(const Machine& machine) {
  const std::string folder = "sys/bus/pci/devices";
  const std::vector<std::string> devices = machine.names_in(folder);
  return static_cast<int>(std::count_if(devices.begin(), devices.end(), [&](const std::string& device) {
    // Classes 0x03: displays and 3D controllers. The same vendor makes switches and sound.
    return machine.read(folder + "/" + device + "/vendor") == "0x10de" &&
           machine.read(folder + "/" + device + "/class").value_or("").starts_with("0x03");
  }));
}

}  // namespace

Gpus read_gpus(const Machine& machine) {
  Gpus gpus;
  gpus.has_driver = machine.has("proc/driver/nvidia/version");
  gpus.has_device_file = machine.has("dev/nvidiactl");
  gpus.of_driver = static_cast<int>(machine.names_in("proc/driver/nvidia/gpus").size());
  gpus.on_bus = gpus_on_bus(machine);
  list_gpus(machine, gpus);
  if (gpus.listed.size() > 1) list_nvlinks(machine, gpus);
  // The program is part of images that are used without GPUs, too, and then says that it finds no driver.
  if (!gpus.has_driver && gpus.on_bus == 0) gpus.problem.clear();
  return gpus;
}

VisibleGpus visible_gpus(const Gpus& gpus, const std::optional<std::string>& variable) {
  if (!variable) return {.count = static_cast<int>(gpus.listed.size()), .bad_word = {}};
  VisibleGpus visible;
  for (const std::string_view part : split(*variable, ',')) {
    const std::string_view word = trimmed(part);
    const bool names_one = std::any_of(gpus.listed.begin(), gpus.listed.end(), [&](const Gpu& gpu) {
      return number_in<int>(word) == gpu.index || (word.starts_with("GPU-") && gpu.uuid.starts_with(word));
    });
    if (!names_one && !word.starts_with("MIG-")) {
      visible.bad_word = word;
      break;
    }
    ++visible.count;
  }
  return visible;
}

}  // namespace consist::doctor
