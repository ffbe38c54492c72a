#include "core/record/sensor_log.h"

#include <chrono>

namespace consist {

SensorLog::SensorLog(Device& device) : device_(device), newest_(device.readings()) {
  if (!newest_.empty()) thread_ = std::thread([this] { serve(); });
}

SensorLog::~SensorLog() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<DeviceReading> SensorLog::newest() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

void SensorLog::serve() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::milliseconds(500), [this] { return end_; })) {
    lock.unlock();
    std::vector<DeviceReading> now = device_.readings();
    lock.lock();
    newest_ = std::move(now);
  }
}

}  // namespace consist
