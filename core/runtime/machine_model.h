// A machine described by a few rates, for estimates of what is not there to be measured.
#pragma once

#include <string>

#include "consist/dtype.h"
#include "consist/export.h"

namespace consist {

/// Rates per second of one rank and its links, as large kernels and messages reach them: not the data sheet's peaks, but for
/// `peak` and `peak_fp8`, which `products` and `attention` are shares of.
struct MachineModel {
  std::string name;
  double peak = 0;      ///< FLOP/s, bf16
  double peak_fp8 = 0;  ///< 0: it has none, fp8 counts as bf16
  double peak_fp32 = 0;
  double products = 0.7;    ///< share of the peak that matrix products reach
  double attention = 0.45;  ///< ... and attention
  double memory = 0;        ///< bytes
  int ranks_per_node = 8;
  double node = 0;     ///< bytes that a rank sends to ranks of its node
  double network = 0;  ///< bytes that a rank sends to other nodes
  double host = 0;  ///< bytes that a rank moves from the host's memory to its own, and as many back at once, all ranks doing so

  /// FLOP/s of matrix products of operands of this dtype.
  double product_rate(DType operand) const;
  /// "h100: products 70% of 989 TFLOP/s, ...": everything that an estimate rests on.
  std::string text() const;
};

/// "h100", or "h100,products=0.6,network=12.5e9": a known machine, and values that replace its own (ranks-per-node among them).
/// Throws UsageError naming what is known.
CONSIST_API MachineModel parse_machine(const std::string& text);

}  // namespace consist
