// The CPU device for tests.
#pragma once

#include "tests/kernels/devices.h"
#include "tests/kernels/run_kernel.h"

namespace consist::test {

/// A CPU device of its own with these options, opened for one rank. Throws UnavailableError.
inline std::shared_ptr<Device> cpu_device(const std::map<std::string, std::string>& options) {
  std::shared_ptr<Device> device = plugin_host().make<Device>("device", "cpu", options);
  device->open(0, 1);
  return device;
}

}  // namespace consist::test
