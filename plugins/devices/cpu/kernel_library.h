// The kernel library that fits the processor.
#pragma once

#include <memory>
#include <string>

#include "consist/kernel.h"

namespace consist::cpu {

/// The device's properties that kernels need to know.
struct KernelSettings {
  int threads = 1;  ///< OpenMP threads of the compute queue; scratch is sized by it and sums are ordered by it
  bool native_bf16 =
      false;  ///< matrix products of bf16 by the processor's instructions; otherwise by fp32 ones on widened operands
};

/// Makes a kernel, or returns null where there is none. The function every kernel library exports.
using MakeKernel = Kernel* (*)(const KernelRequest& request, const KernelSettings& settings);

struct KernelLibrary {
  MakeKernel make = nullptr;
  std::string level;  ///< "x86-64-v4"
};

/// Loads the library of the highest level that this processor runs (or of `level`, if it is not empty). Throws UnavailableError.
KernelLibrary load_kernels(const std::string& level);

/// True if oneDNN multiplies bf16 natively on this processor.
bool has_native_bf16();
/// "3.6.2"
std::string onednn_version();

}  // namespace consist::cpu
