// Asks NVIDIA's management library about NVLink. Best effort: every answer may be "unknown".
#pragma once

#include <optional>
#include <string>

namespace consist::nccl {

/// GPUs are named by PCI bus id ("0000:19:00.0"), as the driver gives it. Thread-safe.
class Nvml {
 public:
  /// Loads libnvidia-ml.so.1; where that fails, everything is unknown.
  static const Nvml& instance();

  /// NVLinks of the GPU that are up.
  std::optional<int> active_links(const std::string& gpu) const;
  /// True if the two GPUs of this host reach each other through NVLink.
  std::optional<bool> linked(const std::string& gpu, const std::string& other) const;

 private:
  Nvml();
  void* device(const std::string& gpu) const;  // null: unknown

  // Functions of NVML's stable C interface; a result of 0 is success, devices are opaque pointers.
  int (*get_device_)(const char* bus_id, void** device) = nullptr;
  int (*link_state_)(void* device, unsigned link, unsigned* active) = nullptr;
  int (*peer_status_)(void* device, void* other, unsigned capability, unsigned* status) = nullptr;
};

}  // namespace consist::nccl
