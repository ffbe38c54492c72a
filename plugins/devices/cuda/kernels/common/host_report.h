// Reports from a kernel to the host that do not make the kernel wait.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <new>
#include <optional>

#include "plugins/devices/cuda/check.h"

namespace consist::cuda {

/// Pinned memory that the device writes and the host reads after a step. Made and destroyed outside of steps.
class HostReport {
 public:
  struct Words {
    std::int32_t found;  ///< 0 or 1
    std::int32_t value;  ///< of one of the writers
  };

  HostReport() {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(Words), cudaHostAllocMapped), "allocate pinned memory for the report of a kernel");
    words_ = new (memory) Words{};
  }
  ~HostReport() { cudaFreeHost(words_); }
  HostReport(const HostReport&) = delete;
  HostReport& operator=(const HostReport&) = delete;

  Words* on_device() const { return words_; }  // the same address under unified addressing

  /// Returns the report of a step that has finished; each report once.
  std::optional<std::int32_t> take() {
    const volatile Words& written = *words_;  // by the device
    if (written.found == 0) return std::nullopt;
    words_->found = 0;
    return words_->value;
  }

 private:
  Words* words_ = nullptr;
};

}  // namespace consist::cuda
