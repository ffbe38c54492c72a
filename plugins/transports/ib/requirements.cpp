#include "plugins/transports/ib/requirements.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include "plugins/transports/nccl/connect.h"
#include "plugins/transports/rdma/requirements.h"

namespace consist::ib {
namespace {

using Lines = std::vector<std::string>;

/// One port as NCCL_IB_HCA names it.
struct Port {
  std::string name;  ///< "mlx5_0:1"
  const RdmaPort* found;
};

std::string port_name(const RdmaDevice& device, const RdmaPort& port) {
  return device.name + ":" + port.name.substr(port.name.rfind(' ') + 1);
}

std::set<std::string> words_of(const std::string& list) {
  std::set<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    if (!word.empty()) words.insert(word);
  }
  return words;
}

std::string devices_problem(const std::vector<RdmaDevice>& devices, const Lines& others, const Places& places) {
  if (!devices.empty()) return {};
  if (others.empty())
    return "there is none in " + places.devices.string() +
           "; load the NIC's driver (mlx5_ib, bnxt_re, irdma, ...), and give a container /dev/infiniband and the NIC's network";
  return "there is none in " + places.devices.string() + " but " + rdma::joined(others) + ", which is EFA: take transport efa";
}

/// Why none of these ports can be used, and what to do.
std::string down_text(const std::vector<Port>& ports) {
  Lines states;
  bool waits = false, ethernet = false;
  for (const Port& port : ports) {
    states.push_back(port.name + " (" + (port.found->ethernet() ? "RoCE" : port.found->link_layer) + ") is " + port.found->state);
    waits |= port.found->state == "INIT" && !port.found->ethernet();
    ethernet |= port.found->ethernet();
  }
  if (states.empty()) return "the devices have no port";
  std::string text = "no port is ACTIVE: " + rdma::joined(states) + "; look at cable and switch (ibstat, ibv_devinfo)";
  if (waits) text += "; INIT means that no subnet manager answers: start opensm, or the switch's own";
  if (ethernet) text += "; of RoCE, bring its interface up (rdma link; ip link set DEV up) and give it an address";
  return text;
}

/// True if `name` is the port or its device.
bool is_named(const Port& port, const std::string& name) {
  return port.name == name || port.name.substr(0, port.name.rfind(':')) == name;
}

/// The problem of the first of `named` that is not there or has no active port; empty if all have.
std::string named_problem(const std::set<std::string>& named, const std::vector<Port>& ports) {
  for (const std::string& name : named) {
    std::vector<Port> own;
    std::copy_if(ports.begin(), ports.end(), std::back_inserter(own), [&](const Port& port) { return is_named(port, name); });
    if (own.empty()) {
      Lines known;
      for (const Port& port : ports) known.push_back(port.name);
      return name + " is not there; there are " + rdma::joined(known);
    }
    if (std::none_of(own.begin(), own.end(), [](const Port& port) { return port.found->active(); })) return down_text(own);
  }
  return {};
}

std::string names_of(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) text += (text.empty() ? "" : ",") + port.name;
  return text;
}

std::string verbs_library_problem() {
  for (const char* name : {"libibverbs.so.1", "libibverbs.so"}) {
    if (dlopen(name, RTLD_NOW | RTLD_LOCAL) != nullptr) return {};
  }
  const char* const reason = dlerror();
  return std::string(reason == nullptr ? "it cannot be loaded" : reason) +
         "; install it (Debian, Ubuntu: libibverbs1 and ibverbs-providers; others: rdma-core)";
}

}  // namespace

Choice choose_ports(const std::string& wanted, const char* environment, const Places& places) {
  std::vector<RdmaDevice> devices;
  Lines others;
  for (RdmaDevice& device : rdma_devices(places.devices)) {
    if (device.is_of("efa"))
      others.push_back(device.name);
    else
      devices.push_back(std::move(device));
  }
  if (std::string problem = devices_problem(devices, others, places); !problem.empty()) return {"", problem};

  std::vector<Port> ports, active, of_infiniband;
  for (const RdmaDevice& device : devices) {
    for (const RdmaPort& port : device.ports) ports.push_back({port_name(device, port), &port});
  }
  const std::set<std::string> named = words_of(wanted);
  if (std::string problem = named_problem(named, ports); !problem.empty()) return {"", problem};
  for (const Port& port : ports) {
    const bool wants =
        named.empty() || std::any_of(named.begin(), named.end(), [&](const std::string& name) { return is_named(port, name); });
    if (!wants || !port.found->active()) continue;
    active.push_back(port);
    if (!port.found->ethernet()) of_infiniband.push_back(port);
  }
  if (active.empty()) return {"", down_text(ports)};
  if (!named.empty()) return {names_of(active), ""};
  const bool both = !of_infiniband.empty() && of_infiniband.size() < active.size();
  return {both && environment == nullptr ? names_of(of_infiniband) : "", ""};
}

std::string problem_of_machine(const std::string& wanted, const std::string& library, const Places& places) {
  rdma::Missing missing;
  const std::string ports = choose_ports(wanted, std::getenv("NCCL_IB_HCA"), places).problem;
  missing.add("device", ports);
  if (ports.empty())
    missing.add("verbs",
                rdma::verbs_problem("docker --device /dev/infiniband; Kubernetes: the resource of the NIC's device plugin",
                                    places.verbs));
  missing.add("libibverbs", verbs_library_problem());
  missing.add("NCCL", nccl::unavailable(library));
  missing.add("memlock limit", rdma::memlock_problem());
  return missing.text("for InfiniBand or RoCE these are missing:");
}

}  // namespace consist::ib
