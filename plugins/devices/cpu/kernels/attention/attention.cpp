// attention, attention_grad and their parts: causal, grouped queries, within a window or not, in blocks with a running softmax (Dao et al.,
// 2022, "FlashAttention"); the square of scores is never stored. All tiles are f32 and padded to whole vectors. Queries are rows as
// they lie in memory; keys and values are gathered by position, whatever the order of the sequence is. The keys of a part are two chunks
// of positions.
#include <algorithm>

#include "plugins/devices/cpu/kernels/attention/attention_shape.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/tile.h"

namespace consist::cpu {
namespace {

/// Caps `count` scores softly, in place.
void cap_scores(float* scores, std::int64_t count, float cap) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) scores[i] = cap * tanh_fast(scores[i] / cap);
}

/// Makes o in `Out`; of a part, merges it with that of the parts before.
template <typename T, typename Out>
class AttentionOf final : public Kernel {
 public:
  AttentionOf(const KernelRequest& r, const KernelSettings& s)
      : s_(r, 0), threads_(s.threads) {}
  /// Per thread: q [block, width], kᵀ [dim, block], v and o [block, value_width], scores [block, block].
  std::int64_t workspace_bytes() const override { return threads_ * floats() * 4; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const Heads<T> q(in[0], s_.dim), k(in[1], s_.dim), v(in[2], s_.value_dim);
    starts_ = at(in, 3).as<std::int32_t>();
    const Buffer& fifth = at(in, 4);  // where the queries begin; of a part, what there is of the parts before
    merges_ = s_.parts > 0 && !fifth.absent();
    if (s_.parts == 0 && !fifth.absent()) s_.begin_at(fifth.as<const std::int32_t>()[0]);
    const Heads<Out> o(out[0], s_.value_dim);
    float* lse = out[1].as<float>();  // [batch, heads, queries]
    const std::int64_t units = s_.batch * s_.heads * s_.blocks();
    parallel_for(threads_, [=, this](int part) {
      float* scratch = static_cast<float*>(workspace) + part * floats();
      // Interleaved, since later blocks of queries see more keys.
      for (std::int64_t unit = part; unit < units; unit += threads_) {
        const std::int64_t block_index = unit % s_.blocks(), head = unit / s_.blocks() % s_.heads,
                           b = unit / s_.blocks() / s_.heads;
        queries(q, k, v, o, lse, b, head, block_index * block, scratch);
      }
    });
  }

 private:
  std::int64_t floats() const { return block * (s_.width + 2 * s_.value_width + s_.dim + block); }

  void queries(Heads<T> q, Heads<T> k, Heads<T> v, Heads<Out> o, float* lse, std::int64_t b, std::int64_t head,
               std::int64_t first, float* scratch) {
    const std::int64_t rows = std::min(block, s_.queries - first), kv_head = head / s_.group();
    float *qt = scratch, *vt = qt + block * s_.width, *ot = vt + block * s_.value_width, *kt = ot + block * s_.value_width,
          *p = kt + s_.dim * block;
    float largest[block], sum[block];
    std::fill(largest, largest + rows, -INFINITY);
    std::fill(sum, sum + rows, 0.0F);
    std::fill(ot, ot + rows * s_.value_width, 0.0F);
    gather_queries(q, s_, b, head, first, rows, s_.scale, qt);
    const AttentionShape::Range seen = s_.seen_by(first, rows);
    for (std::int64_t keys = seen.begin / block * block; keys < seen.end; keys += block) {
      const std::int64_t columns = std::min(block, seen.end - keys);  // behind them a cache may hold anything
      gather_keys_transposed(k, s_, b, kv_head, keys, columns, kt);
      gather_keys(v, s_, b, kv_head, keys, columns, vt);
      tile_product(rows, block, s_.dim, {qt, s_.width, 1}, kt, block, p, block, false);
      for (std::int64_t r = 0; r < rows; ++r) {
        const AttentionShape::Visible visible =
            within_document(s_.visible(first + r, keys, columns), starts_, s_, b, first + r, keys);
        float* row = p + r * block;
        std::fill(row, row + visible.first, 0.0F);
        std::fill(row + visible.last, row + block, 0.0F);
        if (visible.first == visible.last) continue;
        if (s_.cap > 0) cap_scores(row + visible.first, visible.last - visible.first, s_.cap);
        float most = largest[r];
#pragma omp simd reduction(max : most)
        for (std::int64_t j = visible.first; j < visible.last; ++j) most = row[j] > most ? row[j] : most;
        const float shrink = exp_fast(largest[r] - most);
        float added = 0;
#pragma omp simd reduction(+ : added)
        for (std::int64_t j = visible.first; j < visible.last; ++j) {
          row[j] = exp_fast(row[j] - most);
          added += row[j];
        }
        sum[r] = sum[r] * shrink + added;
        largest[r] = most;
        if (shrink != 1.0F) {
          for (std::int64_t i = 0; i < s_.value_width; ++i) ot[r * s_.value_width + i] *= shrink;
        }
      }
      tile_product(rows, s_.value_width, columns, {p, block, 1}, vt, s_.value_width, ot, s_.value_width, true);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      finish_row(ot + r * s_.value_width, largest[r], sum[r], o.of_query(s_, b, first + r, head),
                 lse[(b * s_.heads + head) * s_.queries + first + r]);
    }
  }

  /// A row of a part may see none of its keys: `sum` is 0 then.
  void finish_row(const float* row, float largest, float sum, Out* to, float& lse) const {
    const float here = sum > 0 ? largest + std::log(sum) : -INFINITY;
    float before = 0, factor = sum > 0 ? 1.0F / sum : 0.0F, merged = here;
    if (merges_) {
      const float most = std::max(lse, here);
      if (most == -INFINITY) return;
      merged = most + std::log(std::exp(lse - most) + std::exp(here - most));
      before = std::exp(lse - merged);
      factor *= std::exp(here - merged);
    }
    for (std::int64_t i = 0; i < s_.value_dim; ++i) {
      float value = row[i] * factor;
      if (merges_) value += load(to[i]) * before;
      store(to[i], value);
    }
    lse = merged;
  }

  AttentionShape s_;
  int threads_;
  bool merges_ = false;  // of the launch
  const std::int32_t* starts_ = nullptr;  // of the launch
};

/// A thread takes one key/value head of one sequence at a time, so that dk and dv are sums of its own and the order of every sum
/// is fixed.
template <typename T, typename Out>
class AttentionGradOf final : public Kernel {
 public:
  AttentionGradOf(const KernelRequest& r, const KernelSettings& s)
      : s_(r, 1), threads_(s.threads) {}
  std::int64_t workspace_bytes() const override { return threads_ * floats() * 4; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const Tensors t{.dout = {in[0], s_.value_dim},
                    .q = {in[1], s_.dim},
                    .k = {in[2], s_.dim},
                    .v = {in[3], s_.value_dim},
                    .o = {in[4], s_.value_dim},
                    .lse = in[5].as<float>(),
                    .dq = {out[0], s_.dim},
                    .dk = {out[1], s_.dim},
                    .dv = {out[2], s_.value_dim}};
    starts_ = at(in, 6).as<std::int32_t>();
    adds_ = !at(in, 7).absent();
    const std::int64_t units = s_.batch * s_.kv_heads;
    parallel_for(threads_, [=, this](int part) {
      float* scratch = static_cast<float*>(workspace) + part * floats();
      const Part mine = part_of(units, part, threads_);
      for (std::int64_t unit = mine.first; unit < mine.last; ++unit) head(t, unit / s_.kv_heads, unit % s_.kv_heads, scratch);
    });
  }

 private:
  struct Tensors {
    Heads<T> dout, q, k, v, o;
    const float* lse;  // [batch, heads, queries]
    Heads<Out> dq, dk, dv;
  };

  /// Per thread: dq of a head [queries, width], Σ do·o [queries]; of the whole group of query heads dk [keys, width] and dv
  /// [keys, value_width], by position; tiles.
  std::int64_t floats() const {
    return s_.queries * s_.width + s_.keys * (s_.width + s_.value_width) + pad_columns(s_.queries) +
           block * (2 * s_.width + s_.value_width + s_.dim + s_.value_dim + 2 * block);
  }

  void head(const Tensors& t, std::int64_t b, std::int64_t kv_head, float* scratch) {
    const std::int64_t of_queries = s_.queries * s_.width, of_keys = s_.keys * s_.width, of_values = s_.keys * s_.value_width;
    float *dq = scratch, *dk = dq + of_queries, *dv = dk + of_keys, *delta = dv + of_values,
          *tiles = delta + pad_columns(s_.queries);
    std::fill(dk, dk + of_keys + of_values, 0.0F);
    for (std::int64_t h = kv_head * s_.group(); h < (kv_head + 1) * s_.group(); ++h) {
      std::fill(dq, dq + of_queries, 0.0F);
      for (std::int64_t row = 0; row < s_.queries; ++row) {
        const T *dout = t.dout.of_query(s_, b, row, h), *o = t.o.of_query(s_, b, row, h);
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (std::int64_t i = 0; i < s_.value_dim; ++i) dot += load(dout[i]) * load(o[i]);
        delta[row] = dot;
      }
      for (std::int64_t keys = 0; keys < s_.keys; keys += block) key_block(t, b, h, kv_head, keys, dq, dk, dv, delta, tiles);
      for (std::int64_t row = 0; row < s_.queries; ++row)
        scatter_row(dq + row * s_.width, s_.dim, t.dq.of_query(s_, b, row, h), adds_);
    }
    for (std::int64_t at = 0; at < s_.keys; ++at) {
      scatter_row(dk + at * s_.width, s_.dim, t.dk.of_key(s_, b, at, kv_head));
      scatter_row(dv + at * s_.value_width, s_.value_dim, t.dv.of_key(s_, b, at, kv_head));
    }
  }

  void key_block(const Tensors& t, std::int64_t b, std::int64_t h, std::int64_t kv_head, std::int64_t keys, float* dq, float* dk,
                 float* dv, const float* delta, float* tiles) {
    const std::int64_t columns = std::min(block, s_.keys - keys);
    float *qt = tiles, *dot = qt + block * s_.width, *kr = dot + block * s_.value_width, *kt = kr + block * s_.width,
          *vt = kt + s_.dim * block, *p = vt + s_.value_dim * block, *dp = p + block * block;
    gather_keys(t.k, s_, b, kv_head, keys, columns, kr);
    gather_keys_transposed(t.k, s_, b, kv_head, keys, columns, kt);
    gather_keys_transposed(t.v, s_, b, kv_head, keys, columns, vt);
    for (std::int64_t first = 0; first < s_.queries; first += block) {
      const std::int64_t rows = std::min(block, s_.queries - first);
      const AttentionShape::Range seen = s_.seen_by(first, rows);
      if (seen.end <= keys || seen.begin >= keys + columns) continue;
      gather_queries(t.q, s_, b, h, first, rows, s_.scale, qt);
      gather_queries(t.dout, s_, b, h, first, rows, 1.0F, dot);
      tile_product(rows, block, s_.dim, {qt, s_.width, 1}, kt, block, p, block, false);
      tile_product(rows, block, s_.value_dim, {dot, s_.value_width, 1}, vt, block, dp, block, false);
      const float* lse = t.lse + (b * s_.heads + h) * s_.queries + first;
      for (std::int64_t r = 0; r < rows; ++r) {
        const AttentionShape::Visible visible =
            within_document(s_.visible(first + r, keys, columns), starts_, s_, b, first + r, keys);
        float *pr = p + r * block, *dr = dp + r * block;
        const float d = delta[first + r], l = lse[r];
        if (s_.cap > 0) {
          capped_gradient(pr, dr, visible, l, d);
        } else {
          for (std::int64_t j = visible.first; j < visible.last; ++j) {
            pr[j] = exp_fast(pr[j] - l);
            dr[j] = pr[j] * (dr[j] - d);  // the gradient of the scaled scores
          }
        }
        for (float* of : {pr, dr}) {
          std::fill(of, of + visible.first, 0.0F);
          std::fill(of + visible.last, of + block, 0.0F);
        }
      }
      // q carries the scale already, so that dk needs none; dq takes it from dp.
      tile_product(columns, s_.value_width, rows, {p, 1, block}, dot, s_.value_width, dv + keys * s_.value_width, s_.value_width,
                   true);
      tile_product(columns, s_.width, rows, {dp, 1, block}, qt, s_.width, dk + keys * s_.width, s_.width, true);
      for (std::int64_t i = 0; i < rows * block; ++i) dp[i] *= s_.scale;
      tile_product(rows, s_.width, columns, {dp, block, 1}, kr, s_.width, dq + first * s_.width, s_.width, true);
    }
  }

  /// Scores of a query become probabilities, and the products of do and values gradients of the scores in front of the cap.
  void capped_gradient(float* scores, float* products, AttentionShape::Visible visible, float lse, float delta) const {
    cap_scores(scores + visible.first, visible.last - visible.first, s_.cap);
    for (std::int64_t j = visible.first; j < visible.last; ++j) {
      const float tanh = scores[j] / s_.cap;
      scores[j] = exp_fast(scores[j] - lse);
      products[j] = scores[j] * (products[j] - delta) * (1.0F - tanh * tanh);
    }
  }

  static void scatter_row(const float* from, std::int64_t dim, Out* to, bool adds = false) {
    for (std::int64_t i = 0; i < dim; ++i) store(to[i], adds ? load(to[i]) + from[i] : from[i]);
  }

  AttentionShape s_;
  int threads_;
  bool adds_ = false;                    // dq, of the launch
  const std::int32_t* starts_ = nullptr;  // of the launch
};

template <typename T>
using Attention = AttentionOf<T, T>;
template <typename T>
using AttentionGrad = AttentionGradOf<T, T>;
template <typename T>
using AttentionPart = AttentionOf<T, float>;
template <typename T>
using AttentionPartGrad = AttentionGradOf<T, float>;

Made make_attention(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<Attention>(r.inputs[0].dtype, r, s);
}
Made make_attention_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<AttentionGrad>(r.inputs[1].dtype, r, s);
}
Made make_attention_part(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<AttentionPart>(r.inputs[0].dtype, r, s);
}
Made make_attention_part_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<AttentionPartGrad>(r.inputs[1].dtype, r, s);
}

}  // namespace

CONSIST_KERNEL(attention, make_attention);
CONSIST_KERNEL(attention_grad, make_attention_grad);
CONSIST_KERNEL(attention_part, make_attention_part);
CONSIST_KERNEL(attention_part_grad, make_attention_part_grad);

}  // namespace consist::cpu
