// The ops of docs/ops.md in fp64, written from their formulas and without regard to speed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "consist/attention_scores.h"
#include "consist/bfloat16.h"
#include "consist/expression.h"
#include "consist/op.h"
#include "consist/weight_blocks.h"

namespace consist::reference {

/// A tensor whose elements are exact in `dtype` when it is an input, and exact to fp64 when it is a result.
struct Value {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<double> data;

  double& at(std::int64_t i) { return data[static_cast<std::size_t>(i)]; }
  double at(std::int64_t i) const { return data[static_cast<std::size_t>(i)]; }
};
using Values = std::vector<std::optional<Value>>;

/// The number as `dtype` holds it.
inline double rounded(double value, DType dtype) {
  if (dtype == DType::f32) return static_cast<float>(value);
  if (dtype == DType::bf16) return from_bfloat16(to_bfloat16(static_cast<float>(value)));
  return value;
}

inline Value zeros(DType dtype, const Shape& shape) {
  return {dtype, shape, std::vector<double>(static_cast<std::size_t>(shape.elements()))};
}

Values embedding(const Values& in);

Values linear(const Values& in);

/// y, sum?, rstd
Values rms_norm(const Values& in, double epsilon);

/// y, rstd?
Values rope(const Values& in, std::int64_t head_dim, double epsilon);

/// Keys that the queries of attention see.
struct Visibility {
  std::int64_t window = 0;        ///< 0: all before, or all of the document
  const Value* starts = nullptr;  ///< of documents: [batch, queries]
  /// The positions of queries and keys, by row; empty: 0, 1, 2, ...
  std::vector<std::int64_t> queries = {}, keys = {};

  std::int64_t of_query(std::int64_t row) const { return queries.empty() ? row : queries[static_cast<std::size_t>(row)]; }
  std::int64_t of_key(std::int64_t row) const { return keys.empty() ? row : keys[static_cast<std::size_t>(row)]; }
  /// True if query `query` of `count` sees `key` in sequence `b`.
  bool sees(std::int64_t b, std::int64_t query, std::int64_t count, std::int64_t key) const {
    const std::int64_t at = of_query(query), seen = of_key(key);
    if (seen > at || (window > 0 && seen <= at - window)) return false;
    return starts == nullptr || seen >= static_cast<std::int64_t>(starts->at(b * count + query));
  }
};

/// o, lse. Heads of values may be of another size than those of queries and keys; their number tells.
Values attention(const Values& in, std::int64_t head_dim, const Visibility& visibility = {}, AttentionScores scores = {});

/// The score of a query and a key from their product. A scale of 0 is that of the size of heads.
double attention_score(double product, std::int64_t head_dim, AttentionScores scores);

/// Positions, by row, of the part of the keys that rank `rank` of `parts` attends to after `shift` shifts, in zigzag order.
std::vector<std::int64_t> positions_of_part(std::int64_t rows, std::int64_t parts, std::int64_t rank, std::int64_t shift);

/// o and lse over two sets of keys, from those of each.
Values merged_attention(const Values& a, const Values& b);

/// The parts of each head of x, as attribute "parts" states them (consist/head_parts.h); those that all heads share are added up.
Values split(const Value& x, const std::string& parts);
/// The inverse, which repeats shared parts. Absent ones are zeros.
Values concat(const Values& in, const std::string& parts);

/// A range of a matrix's elements, beside its vectors of rows and channels; without a width: all of a tensor.
struct MatrixSlice {
  std::int64_t width = 0, first = 0;
};

/// The results of expressions (consist/expression.h).
Values map(const Values& in, const std::string& f);
/// The same, for results of that shape.
Values map(const Values& in, const Expressions& f, const Shape& shape, const MatrixSlice& slice = {});
/// The sum of each row of elements of shape `shape` or, by "max", the largest.
Values reduce(const Values& in, const Expressions& f, const std::string& by, const Shape& shape);
/// The sums over the channels of each of `rows` rows, and over the rows for each channel.
Values margins(const Values& in, const Expressions& f, const Shape& shape, std::int64_t rows, const MatrixSlice& slice = {});
/// The sum over all elements.
Values total(const Values& in, const std::string& f);

Values swiglu(const Values& in);

/// `stored`: bytes as numbers.
Value decode_weights(const Value& stored, const WeightBlocks& blocks);

Values lm_head_loss(const Values& in, double scale);
/// Inputs x, w, targets. Outputs: log-probabilities of the targets, denominators.
Values lm_head_log_probability(const Values& in);

}  // namespace consist::reference
