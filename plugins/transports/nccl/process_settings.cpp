#include "plugins/transports/nccl/process_settings.h"

#include <strings.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "consist/error.h"

namespace consist::nccl {
namespace {

class ProcessSettings {
 public:
  void fix(const Need& need) {
    const std::lock_guard lock(mutex_);
    fix_within_host(need);
    if (need.path == Path::socket) prefer("NCCL_IB_DISABLE", "1");
    if (need.path == Path::efa) fix_network(need);
    started_ = true;
    fix_interface(need);
    paths_.insert(need.path);
  }

  bool has_only(Path path) {
    const std::lock_guard lock(mutex_);
    return paths_.size() == 1 && paths_.contains(path);
  }

 private:
  void fix_within_host(const Need& need) {
    // Members that are all on hosts of their own go through the network in any case.
    const bool by_network = need.path == Path::socket || (need.path == Path::efa && !need.nvlink_within_host);
    const bool network_only = by_network && need.share_a_host;
    const bool indifferent = need.path != Path::nvlink && !need.share_a_host;
    if (network_only_ && *network_only_ != network_only && !indifferent) {
      throw UsageError(
          "transport " + need.transport + " of group '" + need.group + "' needs NCCL's peer-to-peer " +
          (network_only ? "off, because members of it share a host" : "on") + ", but transport " + first_ + " has it " +
          (network_only ? "on" : "off") +
          ": NCCL has one such setting per process. Use the same transport on both axes, or lay the axes out so that "
          "members of the group that goes through the network do not share a host");
    }
    if (network_only_) return;
    network_only_ = network_only;
    first_ = need.transport + " of group '" + need.group + "'";
    if (network_only) {
      require(need, "NCCL_P2P_DISABLE", "1");
      require(need, "NCCL_SHM_DISABLE", "1");
    } else {
      require(need, "NCCL_P2P_LEVEL", "NVL");
    }
    // NVLink multicast is a different path, whose failures reach beyond the job; who wants it says so in the environment.
    prefer("NCCL_NVLS_ENABLE", "0");
  }

  void fix_network(const Need& need) const {
    if (std::getenv("NCCL_NET_PLUGIN") == nullptr) {
      if (started_) {
        throw UsageError("transport " + need.transport + " of group '" + need.group + "' needs NCCL to load " +
                         need.network_plugin + ", but NCCL has been started without it for transport " + first_ +
                         "; start with NCCL_NET_PLUGIN=" + need.network_plugin + " in the environment");
      }
      setenv("NCCL_NET_PLUGIN", need.network_plugin.c_str(), 1);
    }
    if (const char* const network = std::getenv("NCCL_NET");
        network != nullptr && strcasecmp(network, need.network.c_str()) != 0) {
      throw UsageError("transport " + need.transport + " needs NCCL's network '" + need.network +
                       "', but the environment says NCCL_NET='" + network + "'; unset it, or choose another transport");
    }
    require(need, "FI_PROVIDER", "efa");
  }

  void fix_interface(const Need& need) {
    if (!interface_fixed_ && !need.interface.empty()) require(need, "NCCL_SOCKET_IFNAME", "=" + need.interface);
    if (interface_fixed_ && !need.interface.empty() && need.interface != interface_) {
      throw UsageError("--" + need.transport + ".interface is '" + need.interface + "', but NCCL has already chosen " +
                       (interface_.empty() ? "an interface by itself" : "'" + interface_ + "'") +
                       " for another group of this process, " + first_ + ": it has one such setting per process");
    }
    interface_fixed_ = true;
    if (interface_.empty()) interface_ = need.interface;
  }

  static void require(const Need& need, const char* name, const std::string& value) {
    const char* const present = std::getenv(name);
    if (present == nullptr) {
      setenv(name, value.c_str(), 1);
    } else if (present != value) {
      throw UsageError("transport " + need.transport + " needs " + name + "=" + value + ", but the environment says '" + present +
                       "'; unset it, or choose another transport");
    }
  }
  static void prefer(const char* name, const char* value) { setenv(name, value, 0); }

  std::mutex mutex_;
  std::optional<bool> network_only_;  ///< members on one host talk through the network, too; fixed by the first group
  std::string first_;
  bool started_ = false;  ///< NCCL may have read its settings
  bool interface_fixed_ = false;
  std::string interface_;
  std::set<Path> paths_;
};

ProcessSettings& process_settings() {
  static ProcessSettings settings;
  return settings;
}

}  // namespace

void fix_process_settings(const Need& need) {
  process_settings().fix(need);
}

bool only_path_of_process(Path path) {
  return process_settings().has_only(path);
}

}  // namespace consist::nccl
