// Extents of attention's tensors, the keys that a query sees, and tiles gathered from them.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "consist/attention_scores.h"
#include "consist/error.h"
#include "consist/token_order.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/numbers.h"
#include "plugins/devices/cpu/kernels/dense/tile.h"

namespace consist::cpu {

inline constexpr std::int64_t block = 64;  // queries and keys per tile

struct AttentionShape {
  std::int64_t batch, queries, keys, heads, kv_heads;
  std::int64_t dim, width;                                         ///< of heads; width: dim padded to whole vectors
  std::int64_t value_dim, value_width;                             ///< of heads of values and of the result
  std::int64_t window;                                             ///< keys that a query sees, itself included
  float scale, cap;                                                ///< of scores; cap 0: none
  std::vector<std::int64_t> position;                              ///< by row of the queries
  std::vector<std::int64_t> row_of_key;                            ///< of the keys in order of position
  std::int64_t parts = 0, part = 0;                                ///< of the sequence's keys in zigzag order, which is here; 0: all

  /// Reads the shape of the request whose inputs `q` and `q` + 1 are queries and keys.
  AttentionShape(const KernelRequest& r, std::size_t q)
      : batch(r.inputs[q].shape[0]),
        queries(r.inputs[q].shape[1]),
        keys(r.inputs[q + 1].shape[1]),
        heads(r.inputs[q].shape[2] / r.attributes.integer("head_dim")),
        kv_heads(r.inputs[q + 1].shape[2] / r.attributes.integer("head_dim")),
        dim(r.attributes.integer("head_dim")),
        width(pad_columns(dim)),
        value_dim(value_dim_of(r.attributes)),
        value_width(pad_columns(value_dim)),
        window(std::min(r.attributes.integer_or("window", keys), keys)),
        scale(static_cast<float>(attention_scores(r.attributes).scale)),
        cap(static_cast<float>(attention_scores(r.attributes).cap)) {
    if (r.attributes.has("ring")) throw ProgramError("attention whose keys travel is not divided into its parts");
    const std::int64_t zigzag = r.attributes.integer_or("zigzag", 0), first = r.input_origins.empty() ? 0 : r.input_origins[q][1];
    const bool whole = !r.attributes.has("shift");
    if (!whole) {
      parts = zigzag;
      part = (first / queries + parts - r.attributes.integer("shift")) % parts;
      window = r.attributes.integer_or("window", keys * parts);
    }
    for (std::int64_t row = 0; row < queries; ++row) position.push_back(position_of(first + row, whole ? keys : keys * parts, zigzag));
    for (std::int64_t at = 0; at < keys; ++at) row_of_key.push_back(whole ? index_of(at, keys, zigzag) : at);
  }
  /// Number of keys in front of position `at`.
  std::int64_t keys_before(std::int64_t at) const {
    if (parts == 0) return std::clamp(at, std::int64_t{0}, keys);
    const std::int64_t chunk = keys / 2;
    return std::clamp(at - part * chunk, std::int64_t{0}, chunk) + std::clamp(at - (2 * parts - 1 - part) * chunk, std::int64_t{0}, chunk);
  }
  /// The queries are a stretch of the sequence that begins at `first`.
  void begin_at(std::int64_t first) {
    if (first < 0 || first + queries > keys)
      throw ProgramError("attention of queries at positions " + std::to_string(first) + " to " + std::to_string(first + queries - 1) +
                         " beside keys of " + std::to_string(keys));
    std::iota(position.begin(), position.end(), first);
  }
  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t blocks() const { return (queries + block - 1) / block; }
  /// Range [first, last) that a query sees of the keys [first_key, first_key + columns) in order of position; empty where
  /// first >= last.
  struct Visible {
    std::int64_t first, last;
  };
  Visible visible(std::int64_t row, std::int64_t first_key, std::int64_t columns) const {
    const std::int64_t end = position[static_cast<std::size_t>(row)] + 1;
    const std::int64_t last = std::clamp(keys_before(end) - first_key, std::int64_t{0}, columns);
    return {std::clamp(keys_before(end - window) - first_key, std::int64_t{0}, last), last};
  }
  /// The keys that some of the queries [first, first + rows) see are within [begin, end).
  struct Range {
    std::int64_t begin, end;
  };
  Range seen_by(std::int64_t first, std::int64_t rows) const {
    const auto [least, most] = std::minmax_element(position.begin() + first, position.begin() + first + rows);
    return {keys_before(*least + 1 - window), keys_before(*most + 1)};
  }
  /// Row of a tensor [batch, rows, ...] of queries, and of keys.
  std::int64_t row_of_query(std::int64_t b, std::int64_t row) const { return b * queries + row; }
  std::int64_t row_of(std::int64_t b, std::int64_t at) const { return b * keys + row_of_key[static_cast<std::size_t>(at)]; }
};

/// A [batch, sequence, heads·dim] tensor, possibly columns of a wider one.
template <typename T>
struct Heads {
  T* data;
  std::int64_t row, dim;
  Heads(const Buffer& buffer, std::int64_t dim) : data(buffer.as<T>()), row(buffer.leading_dimension()), dim(dim) {}
  /// The head's elements of query `query`, and of the key at position `at`.
  T* of_query(const AttentionShape& s, std::int64_t b, std::int64_t query, std::int64_t head) const {
    return data + s.row_of_query(b, query) * row + head * dim;
  }
  T* of_key(const AttentionShape& s, std::int64_t b, std::int64_t at, std::int64_t head) const {
    return data + s.row_of(b, at) * row + head * dim;
  }
};

/// Returns the part of `seen` in the document of query `row`. `starts`: [batch, queries], or null where each sequence is one.
inline AttentionShape::Visible within_document(AttentionShape::Visible seen, const std::int32_t* starts, const AttentionShape& s,
                                        std::int64_t b, std::int64_t row, std::int64_t first_key) {
  if (starts != nullptr)
    seen.first = std::clamp<std::int64_t>(s.keys_before(starts[b * s.queries + row]) - first_key, seen.first, seen.last);
  return seen;
}

/// One row of a head of `dim` elements, times `factor`, into a row of a tile; padding is zero.
template <typename T>
void gather_row(const T* from, std::int64_t dim, float factor, float* to) {
  for (std::int64_t i = 0; i < dim; ++i) to[i] = load(from[i]) * factor;
  for (std::int64_t i = dim; i < pad_columns(dim); ++i) to[i] = 0.0F;
}

/// Queries [first, first + rows) of one head, times `factor`, into tile [rows, padded dim].
template <typename T>
void gather_queries(Heads<T> tensor, const AttentionShape& s, std::int64_t b, std::int64_t head, std::int64_t first,
                    std::int64_t rows, float factor, float* tile) {
  for (std::int64_t r = 0; r < rows; ++r)
    gather_row(tensor.of_query(s, b, first + r, head), tensor.dim, factor, tile + r * pad_columns(tensor.dim));
}
/// The same of keys [first, first + rows) in order of position.
template <typename T>
void gather_keys(Heads<T> tensor, const AttentionShape& s, std::int64_t b, std::int64_t head, std::int64_t first,
                 std::int64_t rows, float* tile) {
  for (std::int64_t r = 0; r < rows; ++r)
    gather_row(tensor.of_key(s, b, first + r, head), tensor.dim, 1.0F, tile + r * pad_columns(tensor.dim));
}

/// Transposed: tile [dim, block]; columns beyond `rows` are zero.
template <typename T>
void gather_keys_transposed(Heads<T> tensor, const AttentionShape& s, std::int64_t b, std::int64_t head, std::int64_t first,
                            std::int64_t rows, float* tile) {
  if (rows < block) std::fill(tile, tile + tensor.dim * block, 0.0F);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* from = tensor.of_key(s, b, first + r, head);
    for (std::int64_t i = 0; i < tensor.dim; ++i) tile[i * block + r] = load(from[i]);
  }
}

}  // namespace consist::cpu
