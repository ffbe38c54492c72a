#include "launch/search/tune/device_here.h"

#include <algorithm>

#include "consist/device.h"
#include "consist/error.h"
#include "core/plan/parts.h"
#include "core/plan/plan.h"

namespace consist::launch {

std::string reason_not_to_measure(const Machine& machine, const RunConfig& config, PluginHost& host) {
  DeviceInfo device;
  try {
    check_forced_routes(config);
  } catch (const UsageError& error) {
    return error.what();
  }
  try {
    const std::shared_ptr<Device> made = make_device(config, host).device;
    made->open(0, 1);
    device = made->info();
  } catch (const Error& error) {
    return std::string("no device works here: ") + error.what();
  }
  const bool is_named = machine.devices.empty() || std::ranges::any_of(machine.devices, [&](const std::string& name) {
                          return device.name.find(name) != std::string::npos;
                        });
  if (device.kind == machine.device_kind && is_named) return {};
  return "the device here is " + device.name + " (" + device.kind + "), not of the machine " + machine.name;
}

}  // namespace consist::launch
