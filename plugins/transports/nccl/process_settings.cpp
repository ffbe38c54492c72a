#include "plugins/transports/nccl/process_settings.h"

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
    // A socket group whose members are all on hosts of their own goes through the network in any case.
    const Path within_host = need.path == Path::socket && need.share_a_host ? Path::socket : Path::nvlink;
    const bool indifferent = need.path == Path::socket && !need.share_a_host;
    if (within_host_ && *within_host_ != within_host && !indifferent) {
      throw UsageError("transport " + need.transport + " of group '" + need.group + "' needs NCCL's peer-to-peer " +
                       (within_host == Path::socket ? "off, because members of it share a host" : "on") + ", but transport " +
                       first_ + " has it " + (within_host == Path::socket ? "on" : "off") +
                       ": NCCL has one such setting per process. Use the same transport on both axes, or lay the axes out so "
                       "that no two members "
                       "of a socket group share a host");
    }
    if (!within_host_) {
      within_host_ = within_host;
      first_ = need.transport + " of group '" + need.group + "'";
      if (within_host == Path::nvlink) {
        require(need, "NCCL_P2P_LEVEL", "NVL");
      } else {
        require(need, "NCCL_P2P_DISABLE", "1");
        require(need, "NCCL_SHM_DISABLE", "1");
      }
      // NVLink multicast is a different path, whose failures reach beyond the job; who wants it says so in the environment.
      prefer("NCCL_NVLS_ENABLE", "0");
    }
    if (need.path == Path::socket) prefer("NCCL_IB_DISABLE", "1");
    fix_interface(need);
    paths_.insert(need.path);
  }

  bool has_only(Path path) {
    const std::lock_guard lock(mutex_);
    return paths_.size() == 1 && paths_.contains(path);
  }

 private:
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
  std::optional<Path> within_host_;  ///< how members on one host talk; fixed by the first group
  std::string first_;
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
