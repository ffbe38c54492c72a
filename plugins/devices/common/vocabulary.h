// Arguments of kernels of the vocabulary_* ops, on every device.
#pragma once

#include <cstdint>

#include "consist/kernel.h"

namespace consist::kernels {

/// Statistics per token and part of the vocabulary: the largest logit, Σ exp(logit − largest), and the target's logit (0 where
/// the target is in another part).
inline constexpr std::int64_t vocabulary_statistics = 3;

/// The tokens and words of one instruction.
struct VocabularyChunk {
  std::int64_t rows;        ///< tokens of the chunk on this rank
  std::int64_t first;       ///< the first one's place among the rank's tokens
  std::int64_t c;           ///< channels of x
  std::int64_t words;       ///< of the vocabulary that this rank holds
  std::int64_t first_word;  ///< the first one's id
  std::int64_t vocabulary;  ///< words of all ranks

  /// `x`: the index of the input x; w and targets follow it.
  VocabularyChunk(const KernelRequest& r, std::size_t x)
      : rows(r.inputs[x].shape.rows() / r.attributes.integer("chunks")),
        first(rows * r.attributes.integer("chunk")),
        c(r.inputs[x].shape.last()),
        words(r.inputs[x + 1].shape[0]),
        first_word(r.input_origins.empty() ? 0 : r.input_origins[x + 1][0]),
        vocabulary(r.attributes.integer("vocabulary")) {}
};

}  // namespace consist::kernels
