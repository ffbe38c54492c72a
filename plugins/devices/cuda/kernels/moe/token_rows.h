// Rows of tokens brought from one order into another.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "consist/dtype.h"

namespace consist::cuda {

/// Tensors [batch, length, columns] whose tokens lie in the order of Program::zigzag, `stride` elements apart, beside dense ones
/// [batch, kept, columns] of the tokens at positions [0, kept).
struct TokenRows {
  std::int64_t batch, length, kept, columns, zigzag;
};

/// `to`, by position, from `from`. THREADS: as kernels; enqueues on `stream`.
void rows_by_position(DType type, const TokenRows& rows, const void* from, std::int64_t stride, void* to, cudaStream_t stream);

inline constexpr std::size_t most_summands = 2;
/// One of the tensors that are summed, by position; it has rows for positions [0, keys), `kept` of a sequence apart.
struct Summand {
  const void* data;
  std::int64_t keys;
};
/// `to` from the sum of at most `most_summands` tensors by position, 0 where none has rows.
void sum_from_positions(DType type, const TokenRows& rows, std::span<const Summand> summands, void* to, std::int64_t stride,
                        cudaStream_t stream);

}  // namespace consist::cuda
