// Chooses the faster way of multiplying bf16 matrices on this processor, by measuring.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/devices/cpu/kernel_library.h"

namespace consist::cpu {

/// FLOP/s over the three products of a linear: forward, the input's gradient, the weight's gradient (in fp32).
struct Bf16Rates {
  double native = 0;    ///< by the processor's bf16 instructions
  double emulated = 0;  ///< operands widened to fp32

  /// Native unless emulation is clearly faster: a measurement of a few milliseconds must not decide between equals.
  bool native_is_chosen() const { return emulated <= 1.05 * native; }
  /// "bf16 products emulated: 95.1 GFLOP/s, 60.2 GFLOP/s by the processor's bf16 instructions"
  std::string text() const;
};

/// Measures on the calling thread's OpenMP pool, for about a tenth of a second: y [m, n] = x [m, k] wᵀ and its gradients, of
/// sizes that are cut to what such a time allows. Requires a processor with bf16 instructions.
Bf16Rates measure_bf16(const KernelLibrary& library, KernelSettings settings, std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace consist::cpu
