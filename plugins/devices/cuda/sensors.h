// Reads the GPU's sensors, through NVML.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "consist/device.h"

namespace consist::cuda {

/// Loads libnvidia-ml at run time (it comes with the driver). Thread-safe.
class Sensors {
 public:
  /// Opens the GPU with this PCI bus id ("0000:1B:00.0"). Where NVML is absent there are no readings, and why() says so.
  explicit Sensors(const std::string& pci_bus_id);
  ~Sensors();
  Sensors(const Sensors&) = delete;
  Sensors& operator=(const Sensors&) = delete;

  /// gpu_use and memory_controller_use (share of the last sample period), memory_used (B), power (W), temperature (degC),
  /// sm_clock and memory_clock (Hz), nvlink_sent and nvlink_received (B since the driver was loaded, all links), pcie_sent and
  /// pcie_received (B/s). NaN where the GPU does not tell.
  std::vector<DeviceReading> read() const;
  const std::string& why() const noexcept { return why_; }
  /// The NVIDIA driver's version ("580.65.06"); empty where NVML does not tell.
  std::string driver_version() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  void* device_ = nullptr;
  std::string why_;
};

}  // namespace consist::cuda
