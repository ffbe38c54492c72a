#include "launch/doctor/rdma.h"

#include <system_error>

namespace consist::doctor {

std::vector<RdmaDevice> read_rdma_devices(const Machine& machine) {
  const std::string folder = "sys/class/infiniband/";
  std::vector<RdmaDevice> devices;
  for (const std::string& name : machine.names_in(folder)) {
    RdmaDevice device{.name = name, .is_efa = name.starts_with("efa"), .ports = {}};
    std::error_code none;
    // The system may have renamed it: "rdmap0s6".
    if (std::filesystem::read_symlink(machine.root / folder / name / "device/driver", none).filename() == "efa")
      device.is_efa = true;
    for (const std::string& port : machine.names_in(folder + name + "/ports")) {
      const auto read = [&](const char* file) {
        return machine.read(folder + name + "/ports/" + port + "/" + file).value_or("");
      };
      const std::string state = read("state");  // "4: ACTIVE"
      const std::size_t colon = state.find(": ");
      device.ports.push_back({.name = name + ", port " + port,
                              .state = colon == std::string::npos ? state : state.substr(colon + 2),
                              .rate = read("rate"),
                              .ethernet = read("link_layer") == "Ethernet"});
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace consist::doctor
