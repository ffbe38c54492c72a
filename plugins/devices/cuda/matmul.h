// Matrix products by cuBLASLt, with algorithms chosen by timing.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "consist/dtype.h"
#include "consist/float8_scaling.h"

namespace consist::cuda {

/// D [m, n] = op(A) op(B) (+ D) (+ bias [n]), all row-major; op(A) is [m, k], op(B) is [k, n]. Summed in fp32.
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;  ///< A is stored as [k, m]
  bool transpose_b = false;  ///< B is stored as [n, k]
  DType a = DType::bf16, b = DType::bf16, d = DType::bf16;
  /// Elements from row to row of A as it is stored, and of D; 0: rows lie one behind the other.
  std::int64_t a_row_stride = 0, d_row_stride = 0;
  bool add = false;   ///< D is added to
  bool bias = false;  ///< of dtype d
  /// op(A) and op(B) are multiplied by scales; of 8-bit floats, which need transpose_b without transpose_a on Hopper.
  bool scaled = false;
  /// Number of scales of op(A) and op(B)ᵀ, rows of k: one, one per row, or per block, where cuBLASLt takes no two squares.
  Scaling a_scaling = Scaling::tensor, b_scaling = Scaling::tensor;
  bool fast_accumulation = false;  ///< of 8-bit floats: tensor cores may keep sums in fewer bits than fp32
};

/// Addresses on the device of what MatmulShape says; null where it says nothing.
struct MatmulOperands {
  const void *a = nullptr, *b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  /// f32: one, [rows], [blocks of k, rows] or [blocks of rows, square_stride(k)].
  const void *a_scale = nullptr, *b_scale = nullptr;
};

/// cuBLASLt's handle, and which algorithm is fastest for a shape here: searched once, then read from a file in the user's cache
/// folder that holds for this GPU model and library version. Used from one thread.
class MatmulLibrary {
 public:
  /// `tf32`: fp32 products may use TF32. `search`: 0 takes cuBLASLt's first proposal; else so many proposals are timed.
  /// `cache_folder`: empty for none. Throws SystemError.
  MatmulLibrary(bool tf32, int search, std::string cache_folder);
  ~MatmulLibrary();
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;

  /// The algorithm for a shape, with at most `workspace` bytes. Takes memory of the GPU for the time of a search. Throws
  /// UnavailableError if there is none.
  cublasLtMatmulAlgo_t algorithm(const MatmulShape& shape, std::int64_t workspace);

  cublasLtHandle_t handle() const noexcept { return handle_; }
  cublasComputeType_t compute_type(DType type) const noexcept;
  /// Searches made since the start (not found in the file), for the log.
  int searches() const noexcept { return searches_; }
  /// Writes what was found to the file, atomically; a file that cannot be written is a warning.
  void save() noexcept;

 private:
  cublasLtMatmulAlgo_t search_for(const MatmulShape& shape, std::int64_t workspace);
  void load();

  cublasLtHandle_t handle_ = nullptr;
  bool tf32_;
  int search_;
  std::string cache_path_;
  std::map<std::string, cublasLtMatmulAlgo_t> known_;
  int searches_ = 0;
  bool changed_ = false;
};

class MatmulDescription;

/// One product, ready to be enqueued.
class Matmul {
 public:
  Matmul(MatmulLibrary& library, const MatmulShape& shape);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;
  Matmul(Matmul&& other) noexcept;

  std::int64_t workspace_bytes() const noexcept { return workspace_bytes_; }
  /// `workspace` has workspace_bytes(). Throws SystemError.
  void enqueue(const MatmulOperands& operands, void* workspace, cudaStream_t stream) const;
  /// The same without scales.
  void enqueue(const void* a, const void* b, void* d, const void* bias, void* workspace, cudaStream_t stream) const;

 private:
  std::unique_ptr<MatmulDescription> description_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace consist::cuda
