// Which GPUs have tensor cores for 8-bit floats.
#pragma once

#include <string>

#include "consist/error.h"
#include "plugins/devices/cuda/kernels/kernels.h"

namespace consist::cuda {

/// Throws UnavailableError where they do not: with another precision the run would not be what was asked for.
inline void require_fp8(const KernelSettings& s) {
  constexpr int first = 89;  // Ada; Hopper is 90
  if (s.compute_capability >= first) return;
  throw UnavailableError("this GPU has compute capability " + std::to_string(s.compute_capability / 10) + "." +
                         std::to_string(s.compute_capability % 10) +
                         ", and tensor cores multiply 8-bit floats from 8.9 on (Ada, Hopper, Blackwell); use --precision bf16");
}

}  // namespace consist::cuda
