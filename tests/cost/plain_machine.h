// A machine whose figures tests can tell apart.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "consist/cost.h"

namespace consist::test {

inline constexpr double endless = 1e30;

/// Every message travels at `rate`, without latency.
inline LinkRates links_of(double rate) {
  return {.curves = {{.op = "*", .rates = {{1, rate}}}}};
}

/// Only matrix products cost time, a second for each FLOP. Two ranks a node.
inline Machine plain_machine() {
  Machine machine{.name = "test", .device_kind = "test", .ranks_per_node = 2};
  DeviceRates& device = machine.device;
  device.peak_fp32 = device.peak_bf16 = device.peak_fp8 = {1};
  device.reached = {{.op = "*", .dtype = "*", .share = {1}}};
  device.memory_rate = {endless};
  machine.node = machine.network = links_of(endless);
  machine.host_alone = machine.host_shared = {endless};
  return machine;
}

inline std::shared_ptr<const Machine> shared(Machine machine) {
  return std::make_shared<Machine>(std::move(machine));
}

}  // namespace consist::test
