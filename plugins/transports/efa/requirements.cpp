#include "plugins/transports/efa/requirements.h"

#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "consist/error.h"
#include "plugins/transports/efa/devices.h"
#include "plugins/transports/efa/ofi_plugin.h"
#include "plugins/transports/nccl/connect.h"

namespace consist::efa {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

/// Buffers that NICs read and write are pinned: libfabric's own pools take tens of MiB per endpoint, NCCL's take more.
constexpr rlim_t enough_memlock = rlim_t{1} << 30U;

std::string joined(const Lines& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string device_problem() {
  Lines others;
  if (efa_devices(others).empty()) {
    return "there is none in " + infiniband_folder.string() + (others.empty() ? "" : " (only " + joined(others) + ")") +
           "; it takes an EC2 instance of a type with EFA, with an interface of that kind attached and the driver efa loaded";
  }
  std::error_code error;
  for (fs::directory_iterator entry("/dev/infiniband", error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with("uverbs")) continue;
    if (std::ifstream(entry->path())) return {};
  }
  return "no /dev/infiniband/uverbs* can be opened; a container must be given them (Kubernetes: vpc.amazonaws.com/efa)";
}

void add(Lines& lines, const std::string& what, const std::string& problem) {
  if (!problem.empty()) lines.push_back(what + ": " + problem);
}

std::string ofi_plugin_problem(const std::string& wanted) {
  try {
    find_ofi_plugin(wanted);
    return {};
  } catch (const UnavailableError& error) {
    return error.what();
  }
}

/// CAP_IPC_LOCK lifts the limit.
bool may_lock_all() {
  constexpr unsigned ipc_lock = 14;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "CapEff:") continue;
    std::uint64_t capabilities = 0;
    status >> std::hex >> capabilities;
    return (capabilities >> ipc_lock & 1U) != 0;
  }
  return false;
}

std::string as_list(const std::string& head, const Lines& lines) {
  if (lines.empty()) return {};
  std::string text = head;
  for (const std::string& line : lines) text += "\n    - " + line;
  return text;
}

}  // namespace

std::string memlock_problem() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= enough_memlock) return {};
  if (may_lock_all()) return {};
  return "a process may pin " + std::to_string(limit.rlim_cur >> 10U) +
         " KiB, too little for the buffers of the NICs; set 'ulimit -l unlimited' (limits.conf: memlock), or give the capability "
         "IPC_LOCK";
}

std::string problem_on_host(const HostOptions& options) {
  Lines lines;
  const bool hardware = options.provider == "efa";
  if (hardware) add(lines, "EFA device", device_problem());
  add(lines, "provider", provider_problem(options, false));
  if (hardware) add(lines, "memlock limit", memlock_problem());
  return as_list("for host memory over libfabric's provider " + options.provider + " these are missing:", lines);
}

std::string problem_on_cuda(const EfaOptions& options) {
  if (options.host.provider != "efa") {
    return "--efa.provider=" + options.host.provider + " runs on host memory; GPUs talk without EFA through transport socket";
  }
  Lines lines;
  add(lines, "EFA device", device_problem());
  add(lines, "NCCL", nccl::unavailable(options.nccl));
  add(lines, "NCCL plugin", ofi_plugin_problem(options.ofi_plugin));
  add(lines, "memlock limit", memlock_problem());
  if (options.gpudirect) add(lines, "GPUDirect", provider_problem(options.host, true));
  return as_list("for GPUs these are missing:", lines);
}

std::string problem_of_machine() {
  const std::string host = problem_on_host({});
  std::error_code error;
  // A machine with EFA and without GPUs lacks nothing that it could use.
  if (host.empty() && !fs::exists("/dev/nvidiactl", error)) return {};
  std::string text = host;
  if (const std::string cuda = problem_on_cuda({}); !cuda.empty()) text += (text.empty() ? "" : "\n  ") + cuda;
  if (!host.empty() && problem_on_host({.provider = "tcp", .device = {}, .libfabric = {}}).empty()) {
    text += "\n  without the hardware, --efa.provider=tcp runs the part for host memory";
  }
  return text;
}

}  // namespace consist::efa
