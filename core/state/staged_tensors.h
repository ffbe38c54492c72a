// A copy of tensors in the host's memory, from which they are written while training goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "consist/device.h"
#include "core/weights/safetensors.h"

namespace consist {

/// Used from the device's thread; the copy may be read from any.
class StagedTensors {
 public:
  explicit StagedTensors(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~StagedTensors();
  StagedTensors(const StagedTensors&) = delete;
  StagedTensors& operator=(const StagedTensors&) = delete;

  /// Allocates memory for tensors of so many bytes in all. Throws SystemError when there is not enough.
  void reserve(std::span<const TensorSource> tensors);
  /// Copies the tensors, for which there is memory. Returns tensors that read the copy; the next call changes it.
  std::vector<TensorSource> copy(std::span<const TensorSource> tensors);

 private:
  std::shared_ptr<Device> device_;
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace consist
