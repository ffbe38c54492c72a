// How long instructions take by what they compute and move: for estimates of a step, for cutting a model into even parts and for
// drawing when they run.
#pragma once

#include "consist/dtype.h"
#include "consist/program.h"

namespace consist {

/// What a device's large kernels reach per second. `products`, `attention` and `attention_grad` are shares of a peak.
struct DeviceRates {
  double peak = 0;      ///< FLOP/s, bf16
  double peak_fp8 = 0;  ///< 0: it has none, fp8 counts as bf16
  double peak_fp32 = 0;
  double products = 0.7;    ///< share of the peak that matrix products reach
  double attention = 0.45;  ///< ... attention does, whose tiles a causal mask cuts and whose products lie between exponentials
  double attention_grad = 0.4;  ///< ... and its gradient
  double memory = 0;            ///< bytes

  /// FLOP/s of matrix products of operands of this dtype.
  CONSIST_API double product_rate(DType operand) const;
};

/// NVIDIA's H200: peaks by its data sheet, shares and memory (0.87 of the sheet's) as the kernels of Llama-3-8B and Qwen3-0.6B
/// reach them in sequences of 4,096, the larger of which run at the lower clocks of the power limit (docs/results.md,
/// docs/cases.md).
inline constexpr DeviceRates h200_rates{.peak = 989.4e12, .peak_fp8 = 1978.9e12, .peak_fp32 = 66.9e12, .memory = 0.87 * 4.8e12};

/// Bytes per second that a rank sends to others of its node over an H200's NVLinks: of the data sheet's, the share that large
/// collectives reach (docs/results.md).
inline constexpr double h200_link_rate = 0.72 * 450e9;

/// Seconds of a compute instruction: its FLOPs over the rate of what it is, or its bytes over the memory's, whichever is longer.
CONSIST_API double seconds_of(const Program& program, const Instruction& instruction, const DeviceRates& rates);

/// The same on an H200, where only instructions beside each other matter and no machine is given: GPUs differ less in the ratio
/// of their rates than ops do.
CONSIST_API double work_of(const Program& program, const Instruction& instruction);

/// For how long an instruction keeps the compute queue busy by work_of(): 0 if it runs on another one or touches no memory.
CONSIST_API double compute_seconds(const Program& program, const Instruction& instruction);

}  // namespace consist
