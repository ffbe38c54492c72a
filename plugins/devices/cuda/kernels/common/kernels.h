// Settings that kernels are made for, and names that their files share. Each registers its own (CONSIST_KERNEL). Host code only: kernels'
// sources are .cu files, this is included by both compilers.
#pragma once

#include "plugins/devices/common/makers.h"

namespace consist::cuda {

class MatmulLibrary;
class RuntimeCode;

/// The device and the options that kernels are made for. Lives as long as the device.
struct KernelSettings {
  int device = 0;              ///< CUDA's index
  int compute_capability = 0;  ///< 90 for 9.0
  int multiprocessors = 0;
  bool tf32 = false;  ///< fp32 products may use TF32
  /// bf16 attention_grad gives the same bits every time, with cuDNN's slower algorithm and a workspace of the size of all scores.
  bool deterministic_attention = false;
  bool plain_grouped = false;  ///< grouped products by the kernel that every GPU has
  int host_threads = 1;  ///< for what runs on the processor
  RuntimeCode* runtime_code = nullptr;  ///< kernels that are compiled for what they compute
  MatmulLibrary* matmuls = nullptr;  ///< cuBLASLt and its chosen algorithms
};

using kernels::at;
using kernels::is_float;
using kernels::Made;

/// adamw, sgd or lion of tensors in the host's memory, by the processor.
Made make_host_update(const KernelRequest& r, const KernelSettings& s);

}  // namespace consist::cuda
