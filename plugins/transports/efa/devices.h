// EFA devices as the kernel shows them, and what they say they have sent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "consist/rdma.h"

namespace consist::efa {

/// The devices whose driver is efa: "rdmap0s6". Empty if there are none; `others` gets the names of all other RDMA devices.
std::vector<std::string> efa_devices(std::vector<std::string>& others, const std::filesystem::path& folder = rdma_folder);

/// Counts the bytes that a device sends from here on, for proving that it was used: the driver's counter tx_bytes, which counts
/// for all processes.
class SentBytes {
 public:
  /// `device` as libfabric or the kernel name it: "rdmap0s6-rdm", "rdmap0s6". Where it shows no counter, known() is false.
  explicit SentBytes(const std::string& device, const std::filesystem::path& folder = rdma_folder);
  bool known() const noexcept { return before_ >= 0; }
  /// Throws UnavailableError if the device has not sent at least `bytes`, after waiting for the counter for a second. Does
  /// nothing unless known().
  void expect(std::int64_t bytes) const;

 private:
  std::int64_t read() const;
  std::string device_;
  std::filesystem::path counter_;
  std::int64_t before_ = -1;
};

}  // namespace consist::efa
