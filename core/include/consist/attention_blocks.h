// Attention of one rank's queries to the keys of all tokens in zigzag order (consist/token_order.h), in blocks. Each block is one
// call of the kernel for unsharded sequences. For devices that compute it so, and for the cost model.
#pragma once

#include <cstdint>
#include <vector>

namespace consist {

/// Some of a rank's two chunks of queries and the chunks of keys that they attend to: to all of them, or, in a causal block, up
/// to their own position. All members count chunks, those of keys in the order of memory. Every key that
/// a query attends to is in one block.
struct AttentionBlock {
  std::int64_t first_query, queries;
  std::int64_t first_key, keys;
  std::int64_t key_step;  ///< distance from one chunk of keys of the block to the next
  bool causal;            ///< queries and keys are the same tokens
};

/// The blocks of rank `rank` of `ranks`, which holds chunks rank and 2·ranks − 1 − rank: the causal one of its own keys; then all
/// its queries and the first chunks of earlier ranks; then its second chunk and both chunks of later ranks. All ranks have
/// equally many pairs. REQUIRES: 0 <= rank < ranks.
inline std::vector<AttentionBlock> attention_blocks(std::int64_t ranks, std::int64_t rank) {
  std::vector<AttentionBlock> blocks{{0, 2, 2 * rank, 2, 1, true}};
  if (rank > 0) blocks.push_back({0, 2, 0, rank, 2, false});
  if (rank + 1 < ranks) blocks.push_back({1, 1, 2 * (rank + 1), 2 * (ranks - 1 - rank), 1, false});
  return blocks;
}

}  // namespace consist
