// Reads the device's sensors beside training.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "consist/device.h"

namespace consist {

/// A thread that reads Device::readings() twice a second: some sensors take milliseconds, and a step should not wait for them.
/// Devices without sensors get no thread.
class SensorLog {
 public:
  explicit SensorLog(Device& device);
  ~SensorLog();
  SensorLog(const SensorLog&) = delete;
  SensorLog& operator=(const SensorLog&) = delete;

  /// The newest readings, always the same figures in the same order.
  std::vector<DeviceReading> newest() const;

 private:
  void serve();

  Device& device_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<DeviceReading> newest_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace consist
