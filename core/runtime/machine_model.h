// A machine described by a few rates, for estimates of what is not there to be measured.
#pragma once

#include <string>

#include "consist/export.h"
#include "core/passes/work.h"

namespace consist {

/// Rates per second of one rank and its links, as large kernels and messages reach them.
struct MachineModel {
  std::string name;
  DeviceRates device;
  double capacity = 0;  ///< bytes of its memory that a rank's plan may take; 0: not known
  int ranks_per_node = 8;
  double node = 0;     ///< bytes that a rank sends to ranks of its node
  double network = 0;  ///< bytes that a rank sends to other nodes
  double host = 0;  ///< bytes that a rank moves from the host's memory to its own, and as many back at once, all ranks doing so

  /// "h100: products 70% of 989 TFLOP/s, ...": everything that an estimate rests on.
  std::string text() const;
};

/// "h100", or "h100,products=0.6,network=12.5e9": a known machine, and values that replace its own (ranks-per-node among them).
/// Throws UsageError naming what is known.
CONSIST_API MachineModel parse_machine(const std::string& text);

}  // namespace consist
