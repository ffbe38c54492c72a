// Asks for alternatives to a run's configuration: faster ones before its first step, ones that fit if it does not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/export.h"
#include "core/plan/plan.h"

namespace consist {

/// Bytes of device memory of the rank that needs the most.
struct RunMemory {
  std::int64_t capacity = 0;  ///< that a rank's plan may take
  std::int64_t planned = 0;   ///< that this run's plan takes, workspaces of kernels included
};

/// Used on one thread, before training. `plan` is that of the run, its target the run's device and machine.
class CONSIST_API Adviser {
 public:
  virtual ~Adviser() = default;

  /// Notes about faster configurations that fit, the most useful first; empty if there is nothing to say. Called on rank 0 alone,
  /// which other ranks wait for. `compile_seconds`: what compiling the steps of all stages takes, one after the other.
  virtual std::vector<std::string> faster(const Plan& plan, const RunMemory& memory, double compile_seconds) = 0;

  /// Lines about configurations that fit, for the message of a run that does not; empty if none was found. Called on every rank
  /// that is refused.
  virtual std::string fitting(const Plan& plan, const RunMemory& memory) = 0;
};

}  // namespace consist
