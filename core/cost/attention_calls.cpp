#include "core/cost/attention_calls.h"

#include <algorithm>
#include <set>

#include "consist/attention_blocks.h"
#include "consist/op.h"

namespace consist {
namespace {

constexpr std::int64_t f32_size = 4;

/// Sizes of one rank's attention.
struct Sizes {
  std::int64_t batch, held, queries, keys;  // sequences, tokens, channels
  std::int64_t heads, size, ranks;
  bool backward;
  Cost cost;

  std::int64_t chunk() const { return held / 2; }
  /// Bytes of so many tokens' queries or keys.
  std::int64_t of_queries(std::int64_t tokens) const { return batch * tokens * queries * size; }
  std::int64_t of_keys(std::int64_t tokens) const { return batch * tokens * keys * size; }
  std::int64_t of_lse(std::int64_t tokens) const { return batch * heads * tokens * f32_size; }

  /// q, k, v and o, in backward do and the gradients as well; lse.
  double bytes(double query_tokens, double key_tokens) const {
    const double tensors = backward ? 4 : 2;
    return tensors * (query_tokens * static_cast<double>(of_queries(1)) + key_tokens * static_cast<double>(of_keys(1))) +
           query_tokens * static_cast<double>(of_lse(1));
  }
  /// `share`: of the instruction's pairs of queries and keys.
  AttentionCall call(std::int64_t query_chunks, std::int64_t key_chunks, double share) const {
    const auto q = static_cast<double>(query_chunks * chunk()), k = static_cast<double>(key_chunks * chunk());
    return {cost.flops * share, bytes(q, k), bytes((q + k) / 2, (q + k) / 2)};
  }
};

/// Attention to keys that are all present: plugins/devices/cuda/kernels/attention/attention_blocks.cpp.
AttentionCalls of_blocks(const Sizes& s, std::int64_t rank) {
  AttentionCalls made;
  const std::vector<AttentionBlock> blocks = attention_blocks(s.ranks, rank);
  std::int64_t together = 0, other_rows = 0;  // tokens: keys that are brought together; results that are merged
  for (const AttentionBlock& block : blocks) {
    const double pairs = static_cast<double>(block.queries * block.keys) / (block.causal ? 2 : 1);
    made.calls.push_back(s.call(block.queries, block.keys, pairs / static_cast<double>(2 * s.ranks)));
    if (block.causal) continue;
    const std::int64_t rows = block.queries * s.chunk();
    other_rows += rows;
    made.scratch += s.of_queries(s.held) - (s.held - rows) * s.of_queries(1) / s.batch + s.of_lse(rows);
    if (block.key_step > 1) together = block.keys * s.chunk();
  }
  made.scratch += 2 * s.of_keys(together) * (s.backward ? 2 : 1);
  made.moved = static_cast<double>(4 * s.of_keys(together));
  if (s.backward && together > 0) made.moved += static_cast<double>(2 * (s.of_keys(together) + s.of_keys(s.held * s.ranks)));
  if (blocks.size() > 1) made.moved += static_cast<double>(2 * s.of_queries(s.held) + s.of_queries(other_rows));
  return made;
}

/// To one part of the keys: plugins/devices/cuda/kernels/attention/attention_parts.cpp. `adds`: to what the parts before gave.
AttentionCalls of_part(const Sizes& s, std::int64_t query_chunks, std::int64_t key_chunks, bool adds) {
  const std::int64_t rows = query_chunks * s.chunk(), keys = key_chunks * s.chunk();
  AttentionCalls made{.calls = {s.call(query_chunks, key_chunks, 1)}, .scratch = s.of_queries(s.held) + s.of_lse(rows)};
  const std::int64_t summed = s.batch * s.queries * f32_size * (adds ? 2 * rows : s.held);  // read and written
  made.moved = static_cast<double>(s.of_queries(rows) + summed);
  if (s.backward) {
    made.scratch += 2 * s.of_keys(s.held);
    made.moved += static_cast<double>(2 * (s.of_keys(keys) + s.batch * s.held * s.keys * f32_size));
  }
  return made;
}

/// Where windows or documents hide keys the mean of all ranks stands for each, and everything is written once and read once.
AttentionCalls as_one(const Cost& cost, std::int64_t scratch) {
  return {.calls = {{cost.flops, cost.bytes, cost.bytes}}, .scratch = scratch, .moved = 2 * static_cast<double>(scratch)};
}

bool is_there(const Instruction& i, std::size_t input) {
  return input < i.inputs.size() && i.inputs[input] != no_tensor;
}

}  // namespace

std::vector<AttentionCalls> attention_calls(const Program& program, const Instruction& i) {
  static const Op *const forward = registry().find("attention"), *const backward = registry().find("attention_grad"),
                         *const part = registry().find("attention_part"),
                         *const part_grad = registry().find("attention_part_grad");
  const bool is_part = i.op == part || i.op == part_grad, of_gradient = i.op == backward || i.op == part_grad;
  if (!is_part && i.op != forward && i.op != backward) return {};
  const std::int64_t ranks = i.attributes.integer_or("zigzag", 0);
  if (ranks == 0) return {};
  const std::size_t q = of_gradient ? 1 : 0;
  const Shape queries = program.local(i.inputs[q]), keys = program.local(i.inputs[q + 1]);
  const Sizes s{.batch = queries[0],
                .held = queries[1],
                .queries = queries[2],
                .keys = keys[2],
                .heads = queries[2] / i.attributes.integer("head_dim"),
                .size = static_cast<std::int64_t>(size_of(program[i.inputs[q]].dtype)),
                .ranks = ranks,
                .backward = of_gradient,
                .cost = i.op->cost(program, i)};
  const std::int64_t length = program[i.inputs[q + 1]].shape[1];
  const bool hidden = is_there(i, q == 0 ? 3 : 6) || i.attributes.integer_or("window", length) < length;
  if (is_part) {
    const bool adds = is_there(i, q == 0 ? 4 : 7);
    if (hidden) return {as_one(s.cost, s.of_queries(s.held) + (of_gradient ? 2 * s.of_keys(s.held) : 0))};
    if (i.attributes.integer("shift") == 0) return {of_part(s, 2, 2, adds)};
    return {of_part(s, 1, 2, adds), of_part(s, 2, 1, adds)};
  }
  if (hidden || s.held * ranks != length || s.held % 2 != 0)
    return {as_one(s.cost, 2 * s.of_keys(length) * (of_gradient ? 3 : 1))};
  std::vector<AttentionCalls> made;
  for (const std::int64_t rank : std::set<std::int64_t>{0, ranks / 2, ranks - 1}) made.push_back(of_blocks(s, rank));
  return made;
}

}  // namespace consist
