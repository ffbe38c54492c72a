// From the forward part of whole sequences to one of a stretch of a sequence, beside the keys and values of what came before.
#pragma once

#include <cstdint>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

inline constexpr const char* position_name = "position";
inline constexpr const char* logits_name = "logits";

/// `forward` is a model's, laid out and typed, of sequences as long as the longest that there is to be room for. It becomes the
/// program of `tokens` of their tokens: input "ids" is then i32[batch, tokens], and input "position", i32[1], says at which
/// position of the sequence the first of them stands. Each attention writes its keys and values into a cache, a state [batch,
/// longest, channels], and reads those of all positions before. Rows of the caches from `position` + `tokens` on keep what they
/// are; rows from `position` on are written before they are read, so that a cache may hold anything at the start of a sequence.
///
/// With `logits` the loss gives way to its logits, the metric "logits" f32[batch, tokens, vocabulary]; without, nothing is made
/// but the caches. Throws UsageError that says which op or layout does not allow it.
CONSIST_API void with_cache(Program& forward, std::int64_t tokens, bool logits);

}  // namespace consist
