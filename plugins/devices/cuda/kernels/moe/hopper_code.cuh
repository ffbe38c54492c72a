// Kernels of Hopper's own instructions have a body in code for architecture 90a alone. Code for 90 runs on the same GPUs, and
// what it has of these kernels is empty: launched, it would leave results as they were, without an error. So each file that has
// such kernels asks, before it makes one, what the code that this GPU runs of that file is.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <string>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/common/compiled_code.h"

/// Two blocks of a kernel run beside each other and share what they read. Compilers refuse the word in code for GPUs without
/// clusters, which gets no body of these kernels either.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CONSIST_PAIRS_OF_BLOCKS __cluster_dims__(2, 1, 1)
#else
#define CONSIST_PAIRS_OF_BLOCKS
#endif

namespace consist::cuda::hopper {
namespace {  // one of each for every file: files may be compiled for different architectures

__global__ void report_body(int* there) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  *there = 1;
#else
  *there = 0;
#endif
}

/// Runs a kernel of this file on `device`, which is the current one; once per device.
bool has_bodies(int device) {
  static std::mutex mutex;
  static std::map<int, bool> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(device); found != known.end()) return found->second;
  int* memory = nullptr;
  int there = 0;
  cuda::check(cudaMalloc(&memory, sizeof there), "memory for a question to the GPU");
  report_body<<<1, 1>>>(memory);
  const cudaError_t launched = cudaGetLastError(), copied = cudaMemcpy(&there, memory, sizeof there, cudaMemcpyDeviceToHost);
  cudaFree(memory);
  cuda::check(launched, "ask which code this GPU runs");
  cuda::check(copied, "ask which code this GPU runs");
  return known[device] = there != 0;
}

/// ERRORS: UnavailableError where this file's kernels have no bodies in the code that the GPU runs.
void require_bodies(const std::string& kernel, const std::string& instead, const KernelSettings& settings) {
  require_body(has_bodies(settings.device), "90a", kernel, instead, settings);
}

}  // namespace
}  // namespace consist::cuda::hopper
