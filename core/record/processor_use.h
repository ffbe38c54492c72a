// Use of the host's processors during a run's steps, by the job and by others: a measurement must know it of its machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "consist/export.h"
#include "consist/job.h"

namespace consist {

/// Seconds since the system's start, over the processors that this process may use.
struct ProcessorTimes {
  double total = 0, idle = 0;
  double stolen = 0;  ///< the hypervisor gave it to other machines
};

/// From the text of /proc/stat, of the processors for which `counts` is true; nothing where the system does not tell.
CONSIST_API std::optional<ProcessorTimes> read_processor_times(std::string_view proc_stat, bool (*counts)(int processor));

/// Fractions, 0..1, of the time of the processors that this process may use.
struct ProcessorUse {
  double own = 0;     ///< by the job's ranks on this host
  double others = 0;  ///< by other processes and the system
  double stolen = 0;
  double idle = 0;

  bool operator==(const ProcessorUse&) const = default;
};

/// Made before the first step and asked after the last, on every rank.
class CONSIST_API ProcessorWatch {
 public:
  ProcessorWatch();
  /// Collective: rank 0 waits for the ranks of its host (at most Job::timeout()) and returns what its host's processors did
  /// meanwhile; nothing on other ranks, and where the system does not tell. Throws what Job::gather throws.
  std::optional<ProcessorUse> finish(Job& job) const;

 private:
  std::optional<ProcessorTimes> before_;
  double own_ = 0;
};

/// The use between two readings, `own` seconds of which were the job's.
CONSIST_API ProcessorUse processor_use(const ProcessorTimes& before, const ProcessorTimes& after, double own);

}  // namespace consist
