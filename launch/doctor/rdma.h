// Network devices that write to the memory of other hosts: InfiniBand, RoCE and EFA.
#pragma once

#include <string>
#include <vector>

#include "launch/doctor/machine.h"

namespace consist::doctor {

struct RdmaPort {
  std::string name;   ///< "mlx5_0, port 1"
  std::string state;  ///< "ACTIVE"
  std::string rate;   ///< "400 Gb/sec (4X NDR)"
  bool ethernet = false;
  bool active() const { return state == "ACTIVE"; }
};

struct RdmaDevice {
  std::string name;
  bool is_efa = false;
  std::vector<RdmaPort> ports;
};

/// Those of /sys/class/infiniband, by name.
std::vector<RdmaDevice> read_rdma_devices(const Machine& machine);

}  // namespace consist::doctor
