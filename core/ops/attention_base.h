// Shapes, placements and FLOPs that attention, attention_part and their gradients share. Batches and heads may be sharded, and
// queries along the sequence.
#pragma once

#include <algorithm>

#include "consist/attention_scores.h"
#include "core/ops/core_ops.h"

namespace consist::ops {

struct AttentionTypes {
  TensorType q, k, v, o, lse;
};

inline Placement of_queries(Placement placement) {
  return placement.is_shard() ? placement : Placement::replicate();
}
/// Queries of a slice of the sequence see keys of all of it, which are unsharded, or sent from rank to rank ("ring").
inline bool keys_travel(const Attributes& attributes) {
  return attributes.has("ring");
}
inline Placement of_keys(Placement queries, const Attributes& attributes) {
  return queries.is_shard(1) && !keys_travel(attributes) ? Placement::replicate() : queries;
}
/// The gradients of keys that queries on several ranks see.
inline Placement of_keys_grad(Placement queries, const Attributes& attributes) {
  return queries.is_shard(1) && !keys_travel(attributes) ? Placement::partial() : queries;
}
/// lse is [batch, heads, sequence].
inline Placement of_lse(Placement queries) {
  if (queries.is_shard(2)) return Placement::shard(1);
  return queries.is_shard(1) ? Placement::shard(2) : queries;
}
/// Starts of documents are [batch, sequence], one per query.
inline Placement of_documents(Placement queries) {
  return queries.is_shard(2) ? Placement::replicate() : queries;
}

/// The number of keys that the queries see between them: all of the sequence.
inline std::int64_t keys_seen(const Program& program, const Instruction& i, TensorId k) {
  return keys_travel(i.attributes) ? program[k].shape[1] : program.local(k)[1];
}

/// `of_scores` matrix products of 2·D flops, and `of_values` of 2·value_dim, per head and visible pair of a query and one of
/// `seen` keys: on average over the queries half of the keys, without those that a window hides. A rank whose queries are a slice
/// in zigzag order has so many (but for the ends of windows); of slices in order of position the last has more. For queries at a
/// position, all keys that the KV cache can hold count: those of the longest sequence.
inline double visible_flops(const Program& program, const Instruction& i, TensorId q, std::int64_t seen, double of_scores,
                            double of_values) {
  const auto queries = static_cast<double>(program.local(q).elements()), keys = static_cast<double>(seen);
  const double window = static_cast<double>(i.attributes.integer_or("window", seen));
  const double hidden = std::max(0.0, keys - window);
  const double value_share =
      static_cast<double>(value_dim_of(i.attributes)) / static_cast<double>(i.attributes.integer("head_dim"));
  return (of_scores + of_values * value_share) * queries * (keys - hidden * hidden / keys);
}

class AttentionBase : public NamedOp {
 public:
  using NamedOp::NamedOp;
  TokenOrder token_order() const noexcept override { return TokenOrder::fixed; }

 protected:
  /// Heads may be sharded, never split, and a rank's heads of q must share its heads of k and v.
  void check_heads(const Program& program, const Attributes& attributes, TensorId q, TensorId k, TensorId v) const {
    const std::int64_t head_dim = attributes.integer("head_dim"), value_dim = value_dim_of(attributes);
    for (TensorId tensor : {q, k}) require_whole_heads(program, tensor, head_dim);
    require_whole_heads(program, v, value_dim);
    require(program.local(q).last() % program.local(k).last() == 0 &&
                program.local(k).last() / head_dim == program.local(v).last() / value_dim &&
                program.local(k)[1] == program.local(v)[1],
            "a rank's heads of q are no multiple of its heads of k and v");
  }
  /// Where input `index` is there it states the position at which each token's document starts: what lies before is not seen.
  void check_documents(const Types& in, std::size_t index, const Shape& q) const {
    check(in, index, {DType::i32, {q[0], q[1]}});
  }
  /// `at_position`: the queries begin at a position (prefill, decode).
  AttentionTypes shapes(const TensorType& q, const TensorType& k, const TensorType& v, const Attributes& attributes,
                        bool at_position = false) const {
    const std::int64_t head_dim = attributes.integer("head_dim"), value_dim = value_dim_of(attributes);
    require(q.shape.rank() == 3 && k.shape.rank() == 3, "q, k and v must be [batch, sequence, heads*head_dim]");
    require(q.dtype == k.dtype && q.shape[0] == k.shape[0], "q and k must be of the same sequences and dtype");
    require(at_position ? q.shape[1] <= k.shape[1] : q.shape[1] == k.shape[1], "q and k must be of the same tokens");
    require(head_dim > 0 && q.shape[2] % head_dim == 0 && k.shape[2] % head_dim == 0,
            "head_dim must divide the channels of q, k and v");
    TensorType values = k;
    if (value_dim > 0) values.shape[2] = k.shape[2] / head_dim * value_dim;
    require(value_dim > 0 && v == values, attributes.has("value_dim")
                                              ? "v must be as k, with value_dim channels for each of its heads"
                                              : "k and v must have the same type");
    require(q.shape[1] > 0 && q.shape[2] > 0 && k.shape[2] > 0, "q, k and v must not be empty");
    require(attributes.integer_or("window", 1) > 0, "window must be at least 1");
    const AttentionScores scores = attention_scores(attributes);
    require(scores.scale > 0 && std::isfinite(scores.scale), "scale must be above 0 and finite");
    require(!attributes.has("cap") || (scores.cap > 0 && std::isfinite(scores.cap)),
            "cap must be above 0 and finite; without a soft-cap it is left out");
    const std::int64_t zigzag = attributes.integer_or("zigzag", 0);
    require(zigzag == 0 || !at_position, "queries at a position are in order of position");
    require(zigzag >= 0 && (zigzag == 0 || q.shape[1] % (2 * zigzag) == 0), "the sequence must be 2·zigzag chunks of equal length");
    require(!keys_travel(attributes) || zigzag > 0, "attribute 'ring' needs attribute 'zigzag'");
    require(q.shape[2] % k.shape[2] == 0, "the heads of q must be a multiple of the heads of k and v");
    TensorType result = q;
    result.shape[2] = q.shape[2] / head_dim * value_dim;
    return {q, k, v, result, {DType::f32, {q.shape[0], q.shape[2] / head_dim, q.shape[1]}}};
  }
};

}  // namespace consist::ops
