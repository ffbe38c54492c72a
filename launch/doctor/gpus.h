// NVIDIA's GPUs as nvidia-smi, the driver and the bus show them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/doctor/machine.h"

namespace consist::doctor {

/// A row of nvidia-smi. Nothing stands where it prints [N/A].
struct Gpu {
  int index = 0;
  std::string uuid, name, driver, performance_state;
  std::optional<bool> persistent, mig;
  std::optional<std::int64_t> ecc_errors;          ///< uncorrected, since the driver was loaded
  std::optional<std::uint64_t> throttle_reasons;   ///< bits of NVML
  std::optional<double> power_limit, usual_power;  ///< W
  std::optional<double> most_clock, asked_clock;   ///< MHz: that the GPU can do, and that applications are given
  std::optional<int> pcie_generation, most_pcie_generation, pcie_width, most_pcie_width;
  std::optional<int> nvlinks;  ///< that are active; asked for where there are several GPUs
  double nvlink_rate = 0;      ///< GB/s of the slowest of them
};

struct Gpus {
  std::vector<Gpu> listed;
  std::string problem;  ///< why some or all could not be listed; empty where all are, and where there is no program nvidia-smi
  bool has_nvidia_smi = false;   ///< the program is there
  bool has_driver = false;       ///< the kernel has loaded NVIDIA's driver
  bool has_device_file = false;  ///< /dev/nvidiactl: absent in a container that was started without GPUs
  int of_driver = 0;             ///< GPUs that the driver has
  int on_bus = 0;                ///< GPUs of NVIDIA on the PCI bus

  bool none() const { return listed.empty() && problem.empty() && of_driver == 0 && on_bus == 0 && !has_device_file; }
};

Gpus read_gpus(const Machine& machine);

/// The GPUs that CUDA_VISIBLE_DEVICES leaves.
struct VisibleGpus {
  int count = 0;
  std::string bad_word;  ///< one that names no GPU: CUDA ignores it and all behind it
};
VisibleGpus visible_gpus(const Gpus& gpus, const std::optional<std::string>& variable);

}  // namespace consist::doctor
