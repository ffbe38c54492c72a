// Bytes that one rank sent to others: counted by the transports that can, else by the program's collectives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "consist/export.h"
#include "core/connect/communicators.h"
#include "core/lower/program_summary.h"

namespace consist {

struct AxisTraffic {
  std::string axis;                ///< "data", "data+context"
  std::int64_t program_bytes = 0;  ///< per step, if rings carry the collectives
  /// Bytes of all steps, of evaluations and of connecting. Nothing where the transport does not count (NCCL does not).
  std::optional<std::int64_t> counted_bytes;
};

/// Returns the traffic over every connected set of axes of `mesh`; `summary` is the step's.
std::vector<AxisTraffic> traffic(const Mesh& mesh, const ProgramSummary& summary, const Communicators& communicators);
/// The archive's /comm, of a run of so many steps.
CONSIST_API std::string traffic_json(const std::vector<AxisTraffic>& axes, std::int64_t steps);

/// Bytes that a step sent, according to /comm.
struct SentPerStep {
  double bytes = 0;
  bool counted = true;  ///< false: of some axis it is the program's
};
/// Nothing where `json` is not of traffic_json() or there was no step.
CONSIST_API std::optional<SentPerStep> sent_per_step(const std::string& json);

}  // namespace consist
