#include "plugins/transports/efa/devices.h"

#include <chrono>
#include <fstream>
#include <thread>

#include "consist/error.h"

namespace consist::efa {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Name that libfabric adds to a device for reliable endpoints.
constexpr std::string_view domain_suffix = "-rdm";
// The kernel may answer from a copy that is a few milliseconds old.
constexpr std::chrono::milliseconds counter_time{1000};
constexpr std::chrono::milliseconds counter_poll{10};

}  // namespace

std::vector<std::string> efa_devices(std::vector<std::string>& others, const fs::path& folder) {
  std::vector<std::string> devices;
  for (const RdmaDevice& device : rdma_devices(folder)) (device.driver == "efa" ? devices : others).push_back(device.name);
  return devices;
}

SentBytes::SentBytes(const std::string& device, const fs::path& folder) : device_(device) {
  if (device_.ends_with(domain_suffix)) device_.resize(device_.size() - domain_suffix.size());
  counter_ = folder / device_ / "ports/1/hw_counters/tx_bytes";
  before_ = read();
}

std::int64_t SentBytes::read() const {
  std::int64_t value = -1;
  std::ifstream(counter_) >> value;
  return value;
}

void SentBytes::expect(std::int64_t bytes) const {
  if (!known()) return;
  const Clock::time_point give_up = Clock::now() + counter_time;
  std::int64_t sent = read() - before_;
  for (; sent < bytes && Clock::now() < give_up; sent = read() - before_) std::this_thread::sleep_for(counter_poll);
  if (sent >= bytes) return;
  throw UnavailableError("asked for efa, but the device " + device_ + " has sent " + std::to_string(sent) + " of " +
                         std::to_string(bytes) + " bytes (says " + counter_.string() + "): the messages took another path");
}

}  // namespace consist::efa
