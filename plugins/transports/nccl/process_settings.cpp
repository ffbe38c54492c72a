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
    if (need.path == Path::socket) turn_ib_off();
    if (need.path == Path::ib) fix_ib(need);
    if (need.path == Path::efa) fix_libfabric(need);
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
    if (within_ && *within_ != need.within && need.share_a_host) {
      throw UsageError("transport " + need.transport + " of group '" + need.group + "' needs NCCL to use " +
                       std::string(text_of(need.within)) + " between GPUs of one host, but transport " + first_ + " has fixed " +
                       std::string(text_of(*within_)) +
                       ": NCCL has one such setting per process. Use the same transport on both axes, or lay the axes out so "
                       "that members of the group that goes through the network do not share a host");
    }
    if (within_) return;
    within_ = need.within;
    first_ = need.transport + " of group '" + need.group + "'";
    const auto fix = [&](const char* name, const char* value) {
      if (need.share_a_host)
        require(need, name, value);
      else
        prefer(name, value);  // no concern of this group's
    };
    switch (need.within) {
      case WithinHost::automatic:
      case WithinHost::nvlink:
        fix("NCCL_P2P_LEVEL", "NVL");
        break;
      case WithinHost::pcie:
        fix("NCCL_P2P_LEVEL", "SYS");
        break;
      case WithinHost::memory:
        fix("NCCL_P2P_DISABLE", "1");
        [[fallthrough]];
      case WithinHost::shm:
        fix("NCCL_SHM_DISABLE", "0");
        break;
      case WithinHost::network:
        fix("NCCL_P2P_DISABLE", "1");
        fix("NCCL_SHM_DISABLE", "1");
        break;
    }
    // Else NCCL goes through NICs within a host where it takes them for faster.
    if (need.within == WithinHost::shm || need.within == WithinHost::pcie || need.within == WithinHost::memory)
      prefer("NCCL_NET_DISABLE_INTRA", "1");
    // NVLink multicast is a different path, whose failures reach beyond the job; who wants it says so in the environment.
    prefer("NCCL_NVLS_ENABLE", "0");
  }

  void turn_ib_off() {
    if (paths_.contains(Path::ib) || std::getenv("NCCL_IB_DISABLE") != nullptr) return;
    setenv("NCCL_IB_DISABLE", "1", 1);
    ib_is_off_ = true;
  }

  /// NCCL reads these when the first group asks for the network, and not at its start.
  void fix_ib(const Need& need) {
    if (ib_is_off_) unsetenv("NCCL_IB_DISABLE");
    ib_is_off_ = false;
    require(need, "NCCL_IB_DISABLE", "0");
    check_network(need);
    if (!need.hcas.empty()) require(need, "NCCL_IB_HCA", "=" + need.hcas);
    if (need.gpudirect_off) require(need, "NCCL_NET_GDR_LEVEL", "LOC");
  }

  void fix_libfabric(const Need& need) const {
    if (std::getenv("NCCL_NET_PLUGIN") == nullptr) {
      if (started_) {
        throw UsageError("transport " + need.transport + " of group '" + need.group + "' needs NCCL to load " +
                         need.network_plugin + ", but NCCL has been started without it for transport " + first_ +
                         "; start with NCCL_NET_PLUGIN=" + need.network_plugin + " in the environment");
      }
      setenv("NCCL_NET_PLUGIN", need.network_plugin.c_str(), 1);
    }
    check_network(need);
    require(need, "FI_PROVIDER", "efa");
  }

  static void check_network(const Need& need) {
    if (const char* const network = std::getenv("NCCL_NET");
        network != nullptr && strcasecmp(network, need.network.c_str()) != 0) {
      throw UsageError("transport " + need.transport + " needs NCCL's network '" + need.network +
                       "', but the environment says NCCL_NET='" + network + "'; unset it, or choose another transport");
    }
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
  std::optional<WithinHost> within_;  ///< fixed by the first group
  std::string first_;
  bool ib_is_off_ = false;  ///< by this class
  bool started_ = false;    ///< NCCL may have read its settings
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
