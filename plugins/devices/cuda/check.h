// Errors of CUDA's libraries as exceptions.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <string>

#include "consist/error.h"

namespace consist::cuda {

/// Throws SystemError: what was asked, CUDA's name of the error and its explanation.
inline void check(cudaError_t status, const char* asked) {
  if (status == cudaSuccess) return;
  throw SystemError(std::string(asked) + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status));
}

inline void check(cublasStatus_t status, const char* asked) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw SystemError(std::string(asked) + ": " + cublasLtGetStatusName(status) + ", " + cublasLtGetStatusString(status));
}

/// After a kernel<<<>>>: a launch that was refused (configuration, missing code for this GPU).
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace consist::cuda
