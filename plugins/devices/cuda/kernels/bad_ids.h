// What a kernel tells the host without making it wait: a token id outside of the vocabulary.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <new>
#include <string>

#include "consist/error.h"
#include "plugins/devices/cuda/check.h"

namespace consist::cuda {

/// Pinned memory that the device writes and the host reads after a step. Made and destroyed outside of steps.
class BadIds {
 public:
  struct Report {
    std::int32_t found;  ///< 0 or 1
    std::int32_t id;     ///< one of those that were found
  };

  BadIds() {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(Report), cudaHostAllocMapped), "allocate pinned memory for the report of a kernel");
    report_ = new (memory) Report{};
  }
  ~BadIds() { cudaFreeHost(report_); }
  BadIds(const BadIds&) = delete;
  BadIds& operator=(const BadIds&) = delete;

  Report* on_device() const { return report_; }  // the same address under unified addressing

  /// Throws DataError if a step that has finished reported an id, once per report. `what`: "token id" or "target".
  void check_reports(const char* what, std::int64_t vocabulary) {
    const volatile Report& written = *report_;  // by the device
    if (written.found == 0) return;
    const std::int32_t id = written.id;
    report_->found = 0;
    throw DataError(std::string(what) + " " + std::to_string(id) + " is outside of the vocabulary of " +
                    std::to_string(vocabulary));
  }

 private:
  Report* report_ = nullptr;
};

}  // namespace consist::cuda
