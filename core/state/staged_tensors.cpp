#include "core/state/staged_tensors.h"

#include <cstring>

#include "consist/error.h"

namespace consist {
namespace {

constexpr std::int64_t tensor_alignment = 64;

/// Bytes that a tensor takes in the copy.
std::int64_t staged_bytes(const TensorSource& tensor) {
  const std::int64_t bytes = tensor.shape.elements() * static_cast<std::int64_t>(tensor.dtype.bytes());
  return (bytes + tensor_alignment - 1) / tensor_alignment * tensor_alignment;
}

std::int64_t staged_bytes(std::span<const TensorSource> tensors) {
  std::int64_t sum = 0;
  for (const TensorSource& tensor : tensors) sum += staged_bytes(tensor);
  return sum;
}

}  // namespace

StagedTensors::~StagedTensors() {
  if (memory_ != nullptr) device_->release(MemorySpace::host, memory_);
}

void StagedTensors::reserve(std::span<const TensorSource> tensors) {
  const std::int64_t needed = staged_bytes(tensors);
  if (needed <= bytes_) return;
  if (memory_ != nullptr) device_->release(MemorySpace::host, memory_);
  memory_ = nullptr;
  bytes_ = 0;
  memory_ = device_->allocate(MemorySpace::host, needed);
  bytes_ = needed;
}

std::vector<TensorSource> StagedTensors::copy(std::span<const TensorSource> tensors) {
  if (staged_bytes(tensors) > bytes_) throw ProgramError("tensors are copied without memory for them");
  std::vector<TensorSource> copies;
  char* at = static_cast<char*>(memory_);
  for (const TensorSource& tensor : tensors) {
    if (const std::int64_t elements = tensor.shape.elements(); elements > 0) tensor.read(at, 0, elements);
    const auto width = static_cast<std::int64_t>(tensor.dtype.bytes());
    copies.push_back({tensor.name, tensor.dtype, tensor.shape, [at, width](void* to, std::int64_t first, std::int64_t count) {
                        std::memcpy(to, at + first * width, static_cast<std::size_t>(count * width));
                      }});
    at += staged_bytes(tensor);
  }
  return copies;
}

}  // namespace consist
