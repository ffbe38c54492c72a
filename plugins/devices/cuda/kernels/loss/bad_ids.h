// A token id outside of the vocabulary, told without making the host wait.
#pragma once

#include <cstdint>
#include <string>

#include "consist/error.h"
#include "plugins/devices/cuda/kernels/common/host_report.h"

namespace consist::cuda {

class BadIds {
 public:
  using Report = HostReport::Words;  ///< value: one of the ids that were found

  Report* on_device() const { return report_.on_device(); }

  /// Throws DataError if a step that has finished reported an id, once per report. `what`: "token id" or "target".
  void check_reports(const char* what, std::int64_t vocabulary) {
    const auto id = report_.take();
    if (!id) return;
    throw DataError(std::string(what) + " " + std::to_string(*id) + " is outside of the vocabulary of " +
                    std::to_string(vocabulary));
  }

 private:
  HostReport report_;
};

}  // namespace consist::cuda
