// Network devices that write to the memory of other hosts, as the kernel shows them: InfiniBand, RoCE and EFA.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"

namespace consist {

struct RdmaPort {
  std::string name;        ///< "mlx5_0, port 1"
  std::string state;       ///< "ACTIVE", "INIT", "DOWN"
  std::string rate;        ///< "400 Gb/sec (4X NDR)"
  std::string link_layer;  ///< "InfiniBand", "Ethernet" (RoCE), "Unspecified" (EFA)
  bool active() const { return state == "ACTIVE"; }
  bool ethernet() const { return link_layer == "Ethernet"; }
};

struct RdmaDevice {
  std::string name;    ///< "mlx5_0"
  std::string driver;  ///< "mlx5_core"; empty: not known
  std::vector<RdmaPort> ports;
  /// True if it is a device of that driver: as the kernel says, or by a name that begins with the driver's. The system may have
  /// renamed it ("rdmap0s6").
  bool is_of(std::string_view of) const { return driver == of || name.starts_with(of); }
};

inline const std::filesystem::path rdma_folder = "/sys/class/infiniband";

/// The devices of a folder like that one, by name; none if it is not there. Any thread.
CONSIST_API std::vector<RdmaDevice> rdma_devices(const std::filesystem::path& folder = rdma_folder);

}  // namespace consist
