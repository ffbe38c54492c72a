// A matrix product as cuBLASLt describes it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "plugins/devices/cuda/matmul.h"

namespace consist::cuda {

/// cuBLASLt's descriptors of a product and of its matrices. Row-major D = op(A) op(B) is column-major Dᵀ = op(B)ᵀ op(A)ᵀ:
/// cuBLASLt gets B first.
class MatmulDescription {
 public:
  /// Throws SystemError, and UnavailableError for what this build's cuBLASLt cannot multiply.
  MatmulDescription(const MatmulShape& shape, cublasComputeType_t compute);
  ~MatmulDescription();
  MatmulDescription(const MatmulDescription&) = delete;
  MatmulDescription& operator=(const MatmulDescription&) = delete;

  const MatmulShape& shape() const noexcept { return shape_; }

  cublasStatus_t enqueue(cublasLtHandle_t handle, const MatmulOperands& operands, const cublasLtMatmulAlgo_t& algorithm,
                         void* workspace, std::int64_t workspace_bytes, cudaStream_t stream) const;

  /// Checks if an algorithm fits, and sets `result` to the workspace that it takes.
  cublasStatus_t check_algorithm(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm,
                                 cublasLtMatmulHeuristicResult_t& result) const;

  /// At most `count` algorithms that cuBLASLt proposes, the one first that it holds for the fastest, with at most `workspace`
  /// bytes.
  cublasStatus_t propose(cublasLtHandle_t handle, std::int64_t workspace, int count, cublasLtMatmulHeuristicResult_t* proposals,
                         int& found) const;

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) const;

  MatmulShape shape_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
};

}  // namespace consist::cuda
