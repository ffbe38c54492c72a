// attention and attention_grad: causal, grouped queries, within a window or not, in blocks with a running softmax (Dao et al.,
// 2022, "FlashAttention"); the square of scores is never stored. All tiles are f32 and padded to whole vectors.
#include <algorithm>

#include "plugins/devices/cpu/kernels/kernels.h"
#include "plugins/devices/cpu/kernels/parallel.h"
#include "plugins/devices/cpu/kernels/tile.h"

namespace consist::cpu {
namespace {

constexpr std::int64_t block = 64;  // queries and keys per tile

struct AttentionShape {
  std::int64_t batch, sequence, heads, kv_heads, dim, width;  ///< width: dim padded to whole vectors
  std::int64_t window;                                        ///< keys that a query sees, itself included
  AttentionShape(const Shape& q, const Shape& k, const Attributes& attributes)
      : AttentionShape(q, k, attributes.integer("head_dim"), attributes.integer_or("window", q[1])) {}
  AttentionShape(const Shape& q, const Shape& k, std::int64_t head_dim, std::int64_t visible_keys)
      : batch(q[0]),
        sequence(q[1]),
        heads(q[2] / head_dim),
        kv_heads(k[2] / head_dim),
        dim(head_dim),
        width(pad_columns(head_dim)),
        window(std::min(visible_keys, q[1])) {}
  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t blocks() const { return (sequence + block - 1) / block; }
  /// Of the keys [keys, keys + columns) those that `query` sees are [first, last); empty where first >= last.
  struct Visible {
    std::int64_t first, last;
  };
  Visible visible(std::int64_t query, std::int64_t keys, std::int64_t columns) const {
    const std::int64_t last = std::clamp(query + 1 - keys, std::int64_t{0}, columns);
    return {std::clamp(query + 1 - window - keys, std::int64_t{0}, last), last};
  }
  /// Element (b, position, head, 0) of a [batch, sequence, …] tensor whose rows are `row` elements apart.
  std::int64_t at(std::int64_t b, std::int64_t position, std::int64_t head, std::int64_t row) const {
    return (b * sequence + position) * row + head * dim;
  }
};

/// A [batch, sequence, heads·dim] tensor, possibly columns of a wider one.
template <typename T>
struct Heads {
  T* data;
  std::int64_t row;
  explicit Heads(const Buffer& buffer) : data(buffer.as<T>()), row(buffer.leading_dimension()) {}
};

/// What of `seen` belongs to the document of the token at `position`. `starts`: [batch, sequence], or null where each sequence is
/// one.
AttentionShape::Visible within_document(AttentionShape::Visible seen, const std::int32_t* starts, const AttentionShape& s,
                                        std::int64_t b, std::int64_t position, std::int64_t keys) {
  if (starts != nullptr) seen.first = std::clamp<std::int64_t>(starts[b * s.sequence + position] - keys, seen.first, seen.last);
  return seen;
}

/// Rows [first, first + rows) of one head, times `factor`, into tile [rows, width]; padding is zero.
template <typename T>
void gather(Heads<T> tensor, const AttentionShape& s, std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t rows,
            float factor, float* tile) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* from = tensor.data + s.at(b, first + r, head, tensor.row);
    float* to = tile + r * s.width;
    for (std::int64_t i = 0; i < s.dim; ++i) to[i] = load(from[i]) * factor;
    for (std::int64_t i = s.dim; i < s.width; ++i) to[i] = 0.0F;
  }
}

/// The same transposed: tile [dim, block]; columns beyond `rows` are zero.
template <typename T>
void gather_transposed(Heads<T> tensor, const AttentionShape& s, std::int64_t b, std::int64_t head, std::int64_t first,
                       std::int64_t rows, float* tile) {
  if (rows < block) std::fill(tile, tile + s.dim * block, 0.0F);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* from = tensor.data + s.at(b, first + r, head, tensor.row);
    for (std::int64_t i = 0; i < s.dim; ++i) tile[i * block + r] = load(from[i]);
  }
}

template <typename T>
class Attention final : public Kernel {
 public:
  Attention(const KernelRequest& r, const KernelSettings& s)
      : s_(r.inputs[0].shape, r.inputs[1].shape, r.attributes), threads_(s.threads) {}
  /// Per thread: q [block, width], kᵀ [dim, block], v [block, width], scores [block, block], o [block, width].
  std::int64_t workspace_bytes() const override { return threads_ * floats() * 4; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const Heads<T> q(in[0]), k(in[1]), v(in[2]);
    starts_ = at(in, 3).as<std::int32_t>();
    T* o = out[0].as<T>();            // [batch, sequence, heads, dim]
    float* lse = out[1].as<float>();  // [batch, heads, sequence]
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
  std::int64_t floats() const { return 3 * block * s_.width + s_.dim * block + block * block; }

  void queries(Heads<T> q, Heads<T> k, Heads<T> v, T* o, float* lse, std::int64_t b, std::int64_t head, std::int64_t first,
               float* scratch) {
    const std::int64_t rows = std::min(block, s_.sequence - first), kv_head = head / s_.group();
    float *qt = scratch, *vt = qt + block * s_.width, *ot = vt + block * s_.width, *kt = ot + block * s_.width,
          *p = kt + s_.dim * block;
    float largest[block], sum[block];
    std::fill(largest, largest + rows, -INFINITY);
    std::fill(sum, sum + rows, 0.0F);
    std::fill(ot, ot + rows * s_.width, 0.0F);
    gather(q, s_, b, head, first, rows, 1.0F / std::sqrt(static_cast<float>(s_.dim)), qt);
    for (std::int64_t keys = std::max(std::int64_t{0}, first + 1 - s_.window) / block * block; keys <= first; keys += block) {
      const std::int64_t columns = std::min(block, s_.sequence - keys);
      gather_transposed(k, s_, b, kv_head, keys, columns, kt);
      gather(v, s_, b, kv_head, keys, columns, 1.0F, vt);
      tile_product(rows, block, s_.dim, {qt, s_.width, 1}, kt, block, p, block, false);
      for (std::int64_t r = 0; r < rows; ++r) {
        const AttentionShape::Visible visible =
            within_document(s_.visible(first + r, keys, columns), starts_, s_, b, first + r, keys);
        float* row = p + r * block;
        std::fill(row, row + visible.first, 0.0F);
        std::fill(row + visible.last, row + block, 0.0F);
        if (visible.first == visible.last) continue;
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
          for (std::int64_t i = 0; i < s_.width; ++i) ot[r * s_.width + i] *= shrink;
        }
      }
      tile_product(rows, s_.width, columns, {p, block, 1}, vt, s_.width, ot, s_.width, true);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      T* to = o + s_.at(b, first + r, head, s_.heads * s_.dim);
      const float inverse = 1.0F / sum[r];
      for (std::int64_t i = 0; i < s_.dim; ++i) store(to[i], ot[r * s_.width + i] * inverse);
      lse[(b * s_.heads + head) * s_.sequence + first + r] = largest[r] + std::log(sum[r]);
    }
  }

  AttentionShape s_;
  int threads_;
  const std::int32_t* starts_ = nullptr;  // of the launch
};

/// A thread takes one key/value head of one sequence at a time, so that dk and dv are sums of its own and the order of every sum
/// is fixed.
template <typename T>
class AttentionGrad final : public Kernel {
 public:
  AttentionGrad(const KernelRequest& r, const KernelSettings& s)
      : s_(r.inputs[1].shape, r.inputs[2].shape, r.attributes), threads_(s.threads) {}
  std::int64_t workspace_bytes() const override { return threads_ * floats() * 4; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const Tensors t{Heads<T>(in[0]),   Heads<T>(in[1]),  Heads<T>(in[2]),  Heads<T>(in[3]), in[4].as<T>(),
                    in[5].as<float>(), Heads<T>(out[0]), Heads<T>(out[1]), Heads<T>(out[2])};
    starts_ = at(in, 6).as<std::int32_t>();
    const std::int64_t units = s_.batch * s_.kv_heads;
    parallel_for(threads_, [=, this](int part) {
      float* scratch = static_cast<float*>(workspace) + part * floats();
      const Part mine = part_of(units, part, threads_);
      for (std::int64_t unit = mine.first; unit < mine.last; ++unit) head(t, unit / s_.kv_heads, unit % s_.kv_heads, scratch);
    });
  }

 private:
  struct Tensors {
    Heads<T> dout, q, k, v;
    const T* o;        // [batch, sequence, heads, dim], as dout
    const float* lse;  // [batch, heads, sequence]
    Heads<T> dq, dk, dv;
  };

  /// Per thread: dq of a head [sequence, width], Σ do·o [sequence]; of the whole group of query heads dk, dv [sequence, width];
  /// tiles.
  std::int64_t floats() const {
    return 3 * s_.sequence * s_.width + pad_columns(s_.sequence) + 3 * block * s_.width + 2 * s_.dim * block + 2 * block * block;
  }

  void head(const Tensors& t, std::int64_t b, std::int64_t kv_head, float* scratch) {
    const std::int64_t whole = s_.sequence * s_.width;
    float *dq = scratch, *dk = dq + whole, *dv = dk + whole, *delta = dv + whole, *tiles = delta + pad_columns(s_.sequence);
    std::fill(dk, dk + 2 * whole, 0.0F);
    for (std::int64_t h = kv_head * s_.group(); h < (kv_head + 1) * s_.group(); ++h) {
      std::fill(dq, dq + whole, 0.0F);
      for (std::int64_t position = 0; position < s_.sequence; ++position) {
        const std::int64_t base = s_.at(b, position, h, s_.heads * s_.dim);
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (std::int64_t i = 0; i < s_.dim; ++i) dot += load(t.dout.data[base + i]) * load(t.o[base + i]);
        delta[position] = dot;
      }
      for (std::int64_t keys = 0; keys < s_.sequence; keys += block) key_block(t, b, h, kv_head, keys, dq, dk, dv, delta, tiles);
      scatter(dq, t.dq, b, h);
    }
    scatter(dk, t.dk, b, kv_head);
    scatter(dv, t.dv, b, kv_head);
  }

  void key_block(const Tensors& t, std::int64_t b, std::int64_t h, std::int64_t kv_head, std::int64_t keys, float* dq, float* dk,
                 float* dv, const float* delta, float* tiles) {
    const float scale = 1.0F / std::sqrt(static_cast<float>(s_.dim));
    const std::int64_t columns = std::min(block, s_.sequence - keys);
    float *qt = tiles, *dot = qt + block * s_.width, *kr = dot + block * s_.width, *kt = kr + block * s_.width,
          *vt = kt + s_.dim * block, *p = vt + s_.dim * block, *dp = p + block * block;
    gather(t.k, s_, b, kv_head, keys, columns, 1.0F, kr);
    gather_transposed(t.k, s_, b, kv_head, keys, columns, kt);
    gather_transposed(t.v, s_, b, kv_head, keys, columns, vt);
    const std::int64_t last_query =
        std::min(s_.sequence, keys + columns + s_.window - 1);  // behind the last one that sees any of these keys
    for (std::int64_t first = keys; first < last_query; first += block) {
      const std::int64_t rows = std::min(block, s_.sequence - first);
      gather(t.q, s_, b, h, first, rows, scale, qt);
      gather(t.dout, s_, b, h, first, rows, 1.0F, dot);
      tile_product(rows, block, s_.dim, {qt, s_.width, 1}, kt, block, p, block, false);
      tile_product(rows, block, s_.dim, {dot, s_.width, 1}, vt, block, dp, block, false);
      const float* lse = t.lse + (b * s_.heads + h) * s_.sequence + first;
      for (std::int64_t r = 0; r < rows; ++r) {
        const AttentionShape::Visible visible =
            within_document(s_.visible(first + r, keys, columns), starts_, s_, b, first + r, keys);
        float *pr = p + r * block, *dr = dp + r * block;
        const float d = delta[first + r], l = lse[r];
        for (std::int64_t j = visible.first; j < visible.last; ++j) {
          pr[j] = exp_fast(pr[j] - l);
          dr[j] = pr[j] * (dr[j] - d);  // the gradient of the scaled scores
        }
        for (float* of : {pr, dr}) {
          std::fill(of, of + visible.first, 0.0F);
          std::fill(of + visible.last, of + block, 0.0F);
        }
      }
      // q carries the scale already, so that dk needs none; dq takes it from dp.
      tile_product(columns, s_.width, rows, {p, 1, block}, dot, s_.width, dv + keys * s_.width, s_.width, true);
      tile_product(columns, s_.width, rows, {dp, 1, block}, qt, s_.width, dk + keys * s_.width, s_.width, true);
      for (std::int64_t i = 0; i < rows * block; ++i) dp[i] *= scale;
      tile_product(rows, s_.width, columns, {dp, block, 1}, kr, s_.width, dq + first * s_.width, s_.width, true);
    }
  }

  void scatter(const float* from, Heads<T> tensor, std::int64_t b, std::int64_t head) const {
    for (std::int64_t position = 0; position < s_.sequence; ++position) {
      T* to = tensor.data + s_.at(b, position, head, tensor.row);
      for (std::int64_t i = 0; i < s_.dim; ++i) store(to[i], from[position * s_.width + i]);
    }
  }

  AttentionShape s_;
  int threads_;
  const std::int32_t* starts_ = nullptr;  // of the launch
};

}  // namespace

Made make_attention(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<Attention>(r.inputs[0].dtype, r, s);
}
Made make_attention_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<AttentionGrad>(r.inputs[1].dtype, r, s);
}

}  // namespace consist::cpu
