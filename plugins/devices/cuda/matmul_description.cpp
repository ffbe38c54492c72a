#include "plugins/devices/cuda/matmul_description.h"

#include <memory>
#include <string>

#include "consist/error.h"
#include "plugins/devices/cuda/check.h"

namespace consist::cuda {
namespace {

/// Alignment of the addresses of strided views of a wider matrix (column_alignment in core/passes/pack_linears.h).
constexpr std::uint32_t column_bytes = 16;

cudaDataType_t cuda_type(DType type) {
  switch (type) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::e4m3:
      return CUDA_R_8F_E4M3;
    case DType::e5m2:
      return CUDA_R_8F_E5M2;
    default:
      throw UnavailableError("device 'cuda' multiplies no " + std::string(name_of(type)) + " matrices");
  }
}

std::int32_t scale_mode(Scaling scaling) {
#if CUDART_VERSION >= 12090
  switch (scaling) {
    case Scaling::row:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case Scaling::block_1d:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scaling::block_2d:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
#else
  throw UnavailableError("device 'cuda' was built with a CUDA before 12.9, whose cuBLASLt has no scales per " +
                         std::string(name_of(scaling)) + "; use --fp8.scaling tensor or delayed");
#endif
}

}  // namespace

template <typename T>
void MatmulDescription::set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
  check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

MatmulDescription::MatmulDescription(const MatmulShape& s, cublasComputeType_t compute) : shape_(s) {
  const cublasOperation_t op_first = s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_second = s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescCreate(&operation_, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  set(CUBLASLT_MATMUL_DESC_TRANSA, op_first);
  set(CUBLASLT_MATMUL_DESC_TRANSB, op_second);
  if (s.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(s.d));
  }
  if (s.fast_accumulation) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
  if (s.a_scaling != Scaling::tensor) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(s.b_scaling));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(s.a_scaling));
    // With such scales cuBLASLt's heuristic refuses a descriptor without pointers (NVIDIA/CUDALibrarySamples, issue 274). It
    // reads nothing there; enqueue() sets the real ones.
    const void* const aligned = reinterpret_cast<const void*>(std::uintptr_t{256});
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, aligned);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, aligned);
  }
  auto layout = [](cublasLtMatrixLayout_t* made, DType type, std::int64_t rows, std::int64_t columns,
                   std::int64_t row_stride = 0) {
    check(cublasLtMatrixLayoutCreate(made, cuda_type(type), static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                                     row_stride == 0 ? rows : row_stride),
          "cublasLtMatrixLayoutCreate");
  };
  // Column-major: the fast dimension, which is the row-major one's last, comes first.
  s.transpose_b ? layout(&first_, s.b, s.k, s.n) : layout(&first_, s.b, s.n, s.k);
  s.transpose_a ? layout(&second_, s.a, s.m, s.k, s.a_row_stride) : layout(&second_, s.a, s.k, s.m, s.a_row_stride);
  layout(&result_, s.d, s.n, s.m, s.d_row_stride);
}

MatmulDescription::~MatmulDescription() {
  cublasLtMatrixLayoutDestroy(result_);
  cublasLtMatrixLayoutDestroy(second_);
  cublasLtMatrixLayoutDestroy(first_);
  cublasLtMatmulDescDestroy(operation_);
}

cublasStatus_t MatmulDescription::enqueue(cublasLtHandle_t handle, const MatmulOperands& o, const cublasLtMatmulAlgo_t& algorithm,
                                          void* workspace, std::int64_t workspace_bytes, cudaStream_t stream) const {
  if (shape_.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
  if (shape_.scaled) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, o.b_scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, o.a_scale);
  }
  const float one = 1, beta = shape_.add ? 1.0F : 0.0F;
  return cublasLtMatmul(handle, operation_, &one, o.b, first_, o.a, second_, &beta, o.d, result_, o.d, result_, &algorithm,
                        workspace, static_cast<std::size_t>(workspace_bytes), stream);
}

cublasStatus_t MatmulDescription::check_algorithm(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm,
                                                  cublasLtMatmulHeuristicResult_t& result) const {
  return cublasLtMatmulAlgoCheck(handle, operation_, first_, second_, result_, result_, &algorithm, &result);
}

cublasStatus_t MatmulDescription::propose(cublasLtHandle_t handle, std::int64_t workspace, int count,
                                          cublasLtMatmulHeuristicResult_t* proposals, int& found) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, cublasStatus_t (*)(cublasLtMatmulPreference_t)> owned(
      preference, cublasLtMatmulPreferenceDestroy);
  const auto limit = static_cast<std::size_t>(workspace);
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit),
        "cublasLtMatmulPreferenceSetAttribute");
  // Parts of a split sum are added in a fixed order, never by atomics: a run repeats to the bit.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                             sizeof reductions),
        "cublasLtMatmulPreferenceSetAttribute");

  // Columns of a wider matrix need not begin where matrices do; A here is cuBLASLt's B.
  const auto begins_at = [&](cublasLtMatmulPreferenceAttributes_t attribute) {
    const std::uint32_t bytes = column_bytes;
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &bytes, sizeof bytes),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  if (shape_.a_row_stride != 0) begins_at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  if (shape_.d_row_stride != 0) {
    begins_at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
    begins_at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  }
  return cublasLtMatmulAlgoGetHeuristic(handle, operation_, first_, second_, result_, result_, preference, count, proposals,
                                        &found);
}

}  // namespace consist::cuda
