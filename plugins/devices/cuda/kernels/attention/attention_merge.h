// Merges results of attention to a part of the keys into results over all keys, in f32.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "consist/dtype.h"

namespace consist::cuda {

/// Tensors [batch, rows, columns] of which a part has something for the rows [first, first + count) of each sequence; what it has
/// in the others is not read.
struct PartRows {
  std::int64_t batch, rows, columns, first, count;
};

/// o, f32 [batch, rows, heads·dim], and lse [batch, heads, rows] over the keys so far and those of the part. `part_o` of `type`
/// lies as o, `part_lse` is [batch, heads, count]. `first_part`: o and lse hold nothing yet; rows without a part get 0 and −∞.
/// THREADS: as kernels; enqueues on `stream`.
void merge_attention(DType type, const PartRows& rows, std::int64_t heads, const void* part_o, const float* part_lse,
                     bool first_part, float* o, float* lse, cudaStream_t stream);

/// `sum`, f32, from a part of `type` that lies as it does: added where `adds`; otherwise rows without a part get 0.
void add_attention_part(DType type, const PartRows& rows, const void* part, bool adds, float* sum, cudaStream_t stream);

inline constexpr std::size_t most_other_blocks = 2;
/// Results of attention to more keys for the rows from `first` on; null where there is no such block.
struct OtherBlock {
  const void* data;  ///< o or dq, [batch, rows, columns]; rows in front of `first` are not read
  const float* lse;  ///< of o, [batch, heads, rows − first]
  std::int64_t first;
};

/// o of `type`, [batch, rows, heads·dim], and lse, f32 [batch, heads, rows], which have attention to some keys, over those of
/// other blocks as well: summed in f32, rounded once.
void merge_attention_blocks(DType type, const PartRows& rows, std::int64_t heads, const OtherBlock (&others)[most_other_blocks],
                            void* o, float* lse, cudaStream_t stream);

/// Adds other blocks to dq of `type`, [batch, rows, columns], whose rows lie `stride` elements apart.
void add_attention_blocks(DType type, const PartRows& rows, const OtherBlock (&others)[most_other_blocks], void* dq,
                          std::int64_t stride, cudaStream_t stream);

}  // namespace consist::cuda
