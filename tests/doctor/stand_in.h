// A machine made up of a folder, a table of GPUs and answers: eight GPUs and four EFA devices, all well.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "launch/doctor/report.h"
#include "tests/temporary_folder.h"

namespace consist::doctor {

class StandIn {
 public:
  StandIn() {
    for (int i = 0; i < 8; ++i) {
      gpus.push_back({{"index", std::to_string(i)},
                      {"uuid", "GPU-0" + std::to_string(i) + "cfd4b5"},
                      {"name", "NVIDIA H100 80GB HBM3"},
                      {"driver_version", "580.159.04"},
                      {"pstate", "P0"},
                      {"persistence_mode", "Enabled"},
                      {"mig.mode.current", "Disabled"},
                      {"ecc.errors.uncorrected.volatile.total", "0"},
                      {"power.limit", "700.00"},
                      {"power.default_limit", "700.00"},
                      {"clocks.max.sm", "1980"},
                      {"clocks.applications.graphics", "1980"},
                      {"pcie.link.gen.current", "5"},
                      {"pcie.link.gen.max", "5"},
                      {"pcie.link.width.current", "16"},
                      {"pcie.link.width.max", "16"},
                      {"clocks_event_reasons.active", "0x0000000000000001"}});
      write("proc/driver/nvidia/gpus/0000:0" + std::to_string(i) + ":00.0/information", "");
      const std::string device = "sys/bus/pci/devices/0000:0" + std::to_string(i) + ":00.0/";
      write(device + "vendor", "0x10de\n");
      write(device + "class", "0x030200\n");
    }
    write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n");
    write("dev/nvidiactl", "");
    for (const std::string device : {"rdmap0s6", "rdmap1s6", "rdmap2s6", "rdmap3s6"}) {
      add_port(device, "4: ACTIVE", "100 Gb/sec (4X EDR)", "Unspecified");
      std::filesystem::create_directories(root.path() / "sys/class/infiniband" / device / "device");
      std::filesystem::create_symlink("../../../../bus/pci/drivers/efa",
                                      root.path() / "sys/class/infiniband" / device / "device/driver");
    }
    write("proc/self/cgroup", "0::/job\n");
    write("proc/self/status", "Name:\tconsist\nCapEff:\t0000000000000000\n");
    write("proc/meminfo", "MemTotal:       1056000000 kB\nMemAvailable:   1000000000 kB\n");
    limits("unlimited", "1048576");
    machine.root = root.path();
    machine.host = "node07";
    machine.processors = 96;
    machine.environment = [this](const char* name) -> std::optional<std::string> {
      const auto at = environment.find(name);
      return at == environment.end() ? std::nullopt : std::optional(at->second);
    };
    machine.run = [this](const std::vector<std::string>& words) { return nvidia_smi(words); };
    machine.plugins = [this] { return plugins; };
    machine.space = [this](const std::string& folder) -> std::optional<Space> {
      const auto at = spaces.find(folder);
      return at == spaces.end() ? std::nullopt : std::optional(at->second);
    };
    machine.resolve_problem = [this](const std::string& host) { return unresolved == host ? "Name or service not known" : ""; };
    machine.listen_problem = [this](std::uint16_t port) { return port == taken_port ? "Address already in use" : ""; };
    machine.loopback_problem = [this] { return loopback; };
    machine.clock_is_synchronized = [this] { return synchronized; };
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root.path() / path).parent_path());
    write_whole(root / path, text);
  }
  void add_port(const std::string& device, const std::string& state, const std::string& rate, const std::string& layer) {
    const std::string port = "sys/class/infiniband/" + device + "/ports/1/";
    write(port + "state", state + "\n");
    write(port + "rate", rate + "\n");
    write(port + "link_layer", layer + "\n");
  }
  void limits(const std::string& locked, const std::string& files) {
    write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max open files            1024                 " +
              files +
              "              files     \n"
              "Max locked memory         65536                " +
              locked + "            bytes     \n");
  }
  /// A machine without any GPU or network device.
  void take_hardware_out() {
    for (const char* folder : {"sys", "dev", "proc/driver"}) std::filesystem::remove_all(root.path() / folder);
    gpus.clear();
    has_nvidia_smi = false;
  }
  PluginState& plugin(const std::string& name) {
    for (PluginState& state : plugins) {
      if (state.name == name) return state;
    }
    throw std::out_of_range(name);
  }
  Report examined(const std::vector<Expectation>& expectations = {}) const {
    return examine(read_facts(machine, "/archives"), expectations);
  }

  TemporaryFolder root;
  Machine machine;
  std::vector<std::map<std::string, std::string>> gpus;  ///< by column of nvidia-smi
  bool has_nvidia_smi = true, has_new_columns = true;
  std::vector<std::string> links =
      std::vector<std::string>(8, std::string(18, '+'));  ///< of each GPU: up '+', slow 's', down '-'
  std::string smi_failure;                                ///< printed instead of a table, before it fails
  std::string smi_ending;                                 ///< printed behind the table, before it fails
  std::map<std::string, std::string> environment;
  std::map<std::string, Space> spaces{{"/dev/shm", {std::int64_t{1} << 40, std::int64_t{1} << 39, true}},
                                      {"/archives", {std::int64_t{1} << 42, std::int64_t{1} << 41, true}}};
  std::vector<PluginState> plugins{{"device", "cpu", false, {}},
                                   {"device", "cuda", true, {}},
                                   {"transport", "nvlink", true, {}},
                                   {"transport", "efa", true, {}}};
  std::string unresolved, loopback;
  std::uint16_t taken_port = 0;
  std::optional<bool> synchronized = true;

 private:
  std::string nvlinks() const {
    std::string text;
    for (std::size_t gpu = 0; gpu < links.size(); ++gpu) {
      text += "GPU " + std::to_string(gpu) + ": NVIDIA H100 80GB HBM3 (UUID: GPU-0" + std::to_string(gpu) + "cfd4b5)\n";
      for (std::size_t link = 0; link < links[gpu].size(); ++link) {
        const char state = links[gpu][link];
        text += "\t Link " + std::to_string(link) + ": " +
                (state == '-'   ? "<inactive>"
                 : state == 's' ? "13.281 GB/s"
                                : "26.562 GB/s") +
                "\n";
      }
    }
    return text;
  }
  std::optional<ChildOutput> nvidia_smi(const std::vector<std::string>& words) const {
    if (!has_nvidia_smi || words[0] != "nvidia-smi") return std::nullopt;
    if (words[1] == "nvlink") return ChildOutput{.text = nvlinks()};
    if (!smi_failure.empty()) return ChildOutput{.text = smi_failure + "\n", .status = 9 << 8};
    const std::string query = words[1].substr(words[1].find('=') + 1);
    std::string text;
    for (const auto& gpu : gpus) {
      std::stringstream columns(query);
      std::string line;
      for (std::string column; std::getline(columns, column, ',');) {
        const bool renamed = column == "clocks_throttle_reasons.active" && !has_new_columns;
        const auto at = gpu.find(renamed ? "clocks_event_reasons.active" : column);
        if (at == gpu.end() || (column == "clocks_event_reasons.active" && !has_new_columns))
          return ChildOutput{.text = "Field \"" + column + "\" is not a valid field to query.\n", .status = 2 << 8};
        line += (line.empty() ? "" : ", ") + at->second;
      }
      text += line + "\n";
    }
    if (gpus.empty()) return ChildOutput{.text = "No devices were found\n", .status = 6 << 8};
    return ChildOutput{.text = text + smi_ending + "\n", .status = smi_ending.empty() ? 0 : 15 << 8};
  }
};

/// The finding of a check; each has a name of its own.
inline const Finding& finding_of(const Report& report, const std::string& name) {
  for (const Result& result : report.results) {
    if (result.name == name) return result.finding;
  }
  throw std::out_of_range(name);
}

/// Names of the checks that complain.
inline std::set<std::string> complaints(const Report& report) {
  std::set<std::string> names;
  for (const Result& result : report.results) {
    const Status status = result.finding.status;
    if (status != Status::ok && status != Status::not_applicable) names.insert(result.name);
  }
  return names;
}

/// Makes it a rank of a job of sixteen.
inline void set_job(StandIn& m, const std::string& rank) {
  m.environment = {{"RANK", rank},
                   {"WORLD_SIZE", "16"},
                   {"MASTER_ADDR", "node01"},
                   {"MASTER_PORT", "29501"},
                   {"CONSIST_JOB_TOKEN", "0123456789abcdef"}};
}

}  // namespace consist::doctor
