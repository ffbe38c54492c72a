#include "plugins/transports/efa/requirements.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "consist/error.h"
#include "consist/rdma.h"
#include "plugins/transports/efa/devices.h"
#include "plugins/transports/efa/ofi_plugin.h"
#include "plugins/transports/nccl/connect.h"
#include "plugins/transports/rdma/requirements.h"

namespace consist::efa {
namespace {

using rdma::Missing;

std::string device_problem() {
  std::vector<std::string> others;
  if (efa_devices(others).empty()) {
    return "there is none in " + rdma_folder.string() + (others.empty() ? "" : " (only " + rdma::joined(others) + ")") +
           "; it takes an EC2 instance of a type with EFA, with an interface of that kind attached and the driver efa loaded";
  }
  return rdma::verbs_problem("Kubernetes: vpc.amazonaws.com/efa");
}

std::string ofi_plugin_problem(const std::string& wanted) {
  try {
    find_ofi_plugin(wanted);
    return {};
  } catch (const UnavailableError& error) {
    return error.what();
  }
}

}  // namespace

std::string problem_on_host(const HostOptions& options) {
  Missing missing;
  const bool hardware = options.provider == "efa";
  if (hardware) missing.add("EFA device", device_problem());
  missing.add("provider", provider_problem(options, false));
  if (hardware) missing.add("memlock limit", rdma::memlock_problem());
  return missing.text("for host memory over libfabric's provider " + options.provider + " these are missing:");
}

std::string problem_on_cuda(const EfaOptions& options) {
  if (options.host.provider != "efa") {
    return "--efa.provider=" + options.host.provider + " runs on host memory; GPUs talk without EFA through transport socket";
  }
  Missing missing;
  missing.add("EFA device", device_problem());
  missing.add("NCCL", nccl::unavailable(options.nccl));
  missing.add("NCCL plugin", ofi_plugin_problem(options.ofi_plugin));
  missing.add("memlock limit", rdma::memlock_problem());
  if (options.gpudirect) missing.add("GPUDirect", provider_problem(options.host, true));
  return missing.text("for GPUs these are missing:");
}

std::string problem_of_machine() {
  const std::string host = problem_on_host({});
  std::error_code error;
  // A machine with EFA and without GPUs lacks nothing that it could use.
  if (host.empty() && !std::filesystem::exists("/dev/nvidiactl", error)) return {};
  std::string text = host;
  if (const std::string cuda = problem_on_cuda({}); !cuda.empty()) text += (text.empty() ? "" : "\n  ") + cuda;
  if (!host.empty() && problem_on_host({.provider = "tcp", .device = {}, .libfabric = {}}).empty()) {
    text += "\n  without the hardware, --efa.provider=tcp runs the part for host memory";
  }
  return text;
}

}  // namespace consist::efa
