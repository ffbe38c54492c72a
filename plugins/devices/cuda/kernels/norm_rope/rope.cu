// rope and rope_grad: half-split rotation of heads, after an RMSNorm of each head where a norm weight is given.
//
// A head is worked on by `lanes` neighbouring lanes, each of which holds one pack of its first half and the pack that lies dim/2
// further on: what the rotation needs. A group of lanes takes up to `group` heads of one token, so that cosines, sines and norm
// weights are read once for all of them. Heads that do not split so (dim not 2·N·power of two, or not aligned) take the kernels
// *_any, a warp for each head. x, y and their gradients may be columns of wider tensors, and what is made may take the place of
// what is rotated: whoever writes an element is the only one to read it, and has.
#include <type_traits>

#include "plugins/devices/cuda/kernels/dense/column_sums.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"
#include "plugins/devices/common/rope.h"

namespace consist::cuda {
namespace {

constexpr int group = 2;  // heads of a token that a group of lanes takes: enough to hide the memory, few enough for registers
template <typename T>
constexpr int blocks_backward = sizeof(T) == 2 ? 3 : 2;  // of a multiprocessor
constexpr int pack_backward = 4;  // elements; the gradient has sums beside them, so that packs of 8 would be too many

struct RopeShape {
  int sequence, heads, dim;
  std::int64_t tokens;
  std::int64_t from_row, to_row, x_row = 0;  ///< elements from token to token of what is rotated, what is made, and rope_grad's x
  RopeShape(const Buffer& from, const Buffer& to, std::int64_t head_dim)
      : sequence(static_cast<int>(from.shape[1])),
        heads(static_cast<int>(from.shape[2] / head_dim)),
        dim(static_cast<int>(head_dim)),
        tokens(from.shape.rows()),
        from_row(from.leading_dimension()),
        to_row(to.leading_dimension()) {}
  /// Groups of heads of a token.
  __host__ __device__ unsigned groups() const { return static_cast<unsigned>((heads + group - 1) / group); }
  /// Lanes of a head for packs of N, or 0 if heads do not split so or are more than 32 bits count.
  int lanes(int N) const {
    const int count = dim % (2 * N) == 0 ? dim / (2 * N) : 0;
    const bool known = (count == 4 || count == 8 || count == 16 || count == 32) && in_step(N, {from_row, to_row, x_row});
    return known && tokens * heads < (std::int64_t{1} << 26) ? count : 0;
  }
};

/// Calls `launch` with the number of lanes as a constant.
template <typename Function>
void by_lanes(int lanes, Function&& launch) {
  if (lanes == 4)
    launch(std::integral_constant<int, 4>{});
  else if (lanes == 8)
    launch(std::integral_constant<int, 8>{});
  else if (lanes == 16)
    launch(std::integral_constant<int, 16>{});
  else
    launch(std::integral_constant<int, 32>{});
}

/// Row p of the table: this lane's cosines and sines, f32 also where the elements are bf16.
template <int N>
struct Angles {
  Pack<float, N> cosine, sine;
  __device__ __forceinline__ Angles(const float* table, unsigned position, int dim, int offset)
      : cosine(load_pack<N>(table + static_cast<std::int64_t>(position) * dim + offset)),
        sine(load_pack<N>(table + static_cast<std::int64_t>(position) * dim + dim / 2 + offset)) {}
};

/// `direction` 1 rotates, -1 rotates back (the gradient of the rotation).
template <typename T, int N, int lanes, bool Normed>
__global__ void __launch_bounds__(threads) rope_heads(const T* x, const float* __restrict__ table, const T* __restrict__ w, T* y,
                                                      float* __restrict__ rstd, RopeShape s, float direction, float epsilon) {
  constexpr int dim = 2 * N * lanes, half = dim / 2;
  const int lane = threadIdx.x % lanes;
  const unsigned groups = s.groups(), unit = blockIdx.x * (threads / lanes) + threadIdx.x / lanes;
  const unsigned token = unit / groups;
  const bool present = token < s.tokens;  // all lanes take part in the sums
  const int first = static_cast<int>(unit - token * groups) * group;
  x += token * s.from_row + first * dim + lane * N;
  y += token * s.to_row + first * dim + lane * N;
  Words<T, N> a[group] = {}, b[group] = {};
#pragma unroll
  for (int h = 0; h < group; ++h) {
    if (!present || first + h >= s.heads) continue;
    a[h] = load_words<N>(x + h * dim);
    b[h] = load_words<N>(x + h * dim + half);
  }
  const Angles<N> angles(table, present ? token % static_cast<unsigned>(s.sequence) : 0, dim, lane * N);
  Words<T, N> wa, wb;
  if (Normed) {
    wa = load_words<N>(w + lane * N);
    wb = load_words<N>(w + half + lane * N);
  }
#pragma unroll
  for (int h = 0; h < group; ++h) {
    const bool mine = present && first + h < s.heads;
    float scale = 1.0F;
    if (Normed) {
      float squares = 0.0F;
#pragma unroll
      for (int i = 0; i < N; ++i) squares += a[h][i] * a[h][i] + b[h][i] * b[h][i];
      scale = 1.0F / sqrtf(sum_of_lanes<lanes>(squares) / static_cast<float>(dim) + epsilon);
      if (mine && lane == 0 && rstd != nullptr) rstd[static_cast<std::int64_t>(token) * s.heads + first + h] = scale;
    }
    float p[N], q[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float left = Normed ? a[h][i] * scale * wa[i] : a[h][i], right = Normed ? b[h][i] * scale * wb[i] : b[h][i];
      const float cosine = angles.cosine.element[i], sine = direction * angles.sine.element[i];
      p[i] = left * cosine - right * sine;
      q[i] = right * cosine + left * sine;
    }
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      a[h].set_pair(i, p[i], p[i + 1]);
      b[h].set_pair(i, q[i], q[i + 1]);
    }
    if (!mine) continue;
    store_words<N>(y + h * dim, a[h]);
    store_words<N>(y + h * dim + half, b[h]);
  }
}

template <typename T>
__global__ void __launch_bounds__(threads)
    rope_any(const T* x, const float* table, const T* w, T* y, float* rstd, RopeShape s, float direction, float epsilon) {
  const int lane = threadIdx.x % 32, half = s.dim / 2;
  const std::int64_t head = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) / 32;
  if (head >= s.tokens * s.heads) return;  // the whole warp
  const std::int64_t token = head / s.heads, column = head % s.heads * s.dim;
  const float* angles = table + token % s.sequence * s.dim;
  const T* from = x + token * s.from_row + column;
  T* to = y + token * s.to_row + column;
  float scale = 1.0F;
  if (w != nullptr) {
    float squares = 0.0F;
    for (int i = lane; i < s.dim; i += 32) squares += number(from[i]) * number(from[i]);
    scale = 1.0F / sqrtf(sum_of_lanes(squares) / static_cast<float>(s.dim) + epsilon);
    if (lane == 0 && rstd != nullptr) rstd[head] = scale;
  }
  for (int i = lane; i < half; i += 32) {
    const float p = number(from[i]) * scale * (w == nullptr ? 1.0F : number(w[i]));
    const float q = number(from[half + i]) * scale * (w == nullptr ? 1.0F : number(w[half + i]));
    const float cosine = angles[i], sine = direction * angles[half + i];
    to[i] = rounded<T>(p * cosine - q * sine);
    to[half + i] = rounded<T>(q * cosine + p * sine);
  }
}

/// Adds up the block's dw, of a lane's packs in both halves: over the groups of lanes of a warp, then over the warps.
template <int N, int lanes>
__device__ __forceinline__ void store_sums(float (&dwa)[N], float (&dwb)[N], float (&sums)[threads / 32][2 * N * lanes],
                                           float* __restrict__ partial) {
  constexpr int dim = 2 * N * lanes, half = dim / 2;
  const int lane = threadIdx.x % lanes;
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int distance = 16; distance >= lanes; distance /= 2) {
      dwa[i] += __shfl_xor_sync(0xffffffffU, dwa[i], distance);
      dwb[i] += __shfl_xor_sync(0xffffffffU, dwb[i], distance);
    }
    if (threadIdx.x % 32 < lanes) {
      sums[threadIdx.x / 32][lane * N + i] = dwa[i];
      sums[threadIdx.x / 32][half + lane * N + i] = dwb[i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < dim; i += threads) {
    float total = 0.0F;
    for (int warp = 0; warp < threads / 32; ++warp) total += sums[warp][i];
    partial[static_cast<std::int64_t>(blockIdx.x) * dim + i] = total;
  }
}

/// dx and the block's part of dw [dim]. With g the gradient before the rotation:
/// dx = rstd·(g·w − x·rstd²·mean(g·w·x)), dw = Σ g·x·rstd.
template <typename T, int N, int lanes>
__global__ void __launch_bounds__(threads, blocks_backward<T>)
    rope_grad_heads(const T* dy, const float* __restrict__ table, const T* __restrict__ x, const float* __restrict__ rstd,
                    const T* __restrict__ w, T* dx, float* __restrict__ partial, RopeShape s) {
  constexpr int dim = 2 * N * lanes, half = dim / 2;
  __shared__ float sums[threads / 32][dim];  // of each warp
  const int lane = threadIdx.x % lanes;
  const unsigned groups = s.groups(), together = gridDim.x * (threads / lanes);
  const Words<T, N> wa = load_words<N>(w + lane * N), wb = load_words<N>(w + half + lane * N);
  float dwa[N] = {}, dwb[N] = {};
  // All lanes of a warp stay in the loop as long as one has work: the sums over lanes need them. What is absent counts as zero.
  const unsigned units = static_cast<unsigned>(s.tokens) * groups,
                 first_unit = blockIdx.x * (threads / lanes) + threadIdx.x / lanes,
                 first_of_warp = blockIdx.x * (threads / lanes) + threadIdx.x / 32 * 32 / lanes;
  for (unsigned step = 0; first_of_warp + step < units; step += together) {
    const unsigned unit = first_unit + step, token = unit / groups;
    const bool present = unit < units;
    const int first = static_cast<int>(unit - token * groups) * group;
    const std::int64_t head = static_cast<std::int64_t>(token) * s.heads + first;
    const int column = first * dim + lane * N;
    const T *dy_here = dy + token * s.from_row + column, *x_here = x + token * s.x_row + column;
    T* dx_here = dx + token * s.to_row + column;
    const Angles<N> angles(table, present ? token % static_cast<unsigned>(s.sequence) : 0, dim, lane * N);
    Words<T, N> ga[group] = {}, gb[group] = {}, xa[group] = {}, xb[group] = {};
    float scale[group] = {};
#pragma unroll
    for (int h = 0; h < group; ++h) {
      if (!present || first + h >= s.heads) continue;
      ga[h] = load_words<N>(dy_here + h * dim);
      gb[h] = load_words<N>(dy_here + h * dim + half);
      xa[h] = load_words<N>(x_here + h * dim);
      xb[h] = load_words<N>(x_here + h * dim + half);
      scale[h] = rstd[head + h];
    }
#pragma unroll
    for (int h = 0; h < group; ++h) {
      float p[N], q[N], dot = 0.0F;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float a = ga[h][i], b = gb[h][i], cosine = angles.cosine.element[i], sine = angles.sine.element[i];
        p[i] = a * cosine + b * sine;
        q[i] = b * cosine - a * sine;
        const float pa = p[i] * xa[h][i], qb = q[i] * xb[h][i];
        dwa[i] += pa * scale[h];
        dwb[i] += qb * scale[h];
        dot += pa * wa[i] + qb * wb[i];
      }
      const float pull = sum_of_lanes<lanes>(dot) / static_cast<float>(dim) * scale[h] * scale[h];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        p[i] = scale[h] * (p[i] * wa[i] - xa[h][i] * pull);
        q[i] = scale[h] * (q[i] * wb[i] - xb[h][i] * pull);
      }
#pragma unroll
      for (int i = 0; i < N; i += 2) {
        ga[h].set_pair(i, p[i], p[i + 1]);
        gb[h].set_pair(i, q[i], q[i + 1]);
      }
      if (!present || first + h >= s.heads) continue;
      store_words<N>(dx_here + h * dim, ga[h]);
      store_words<N>(dx_here + h * dim + half, gb[h]);
    }
  }
  store_sums<N, lanes>(dwa, dwb, sums, partial);
}

/// The same, a block for each head in turn, its sum in partial [gridDim.x, dim] itself.
template <typename T>
__global__ void __launch_bounds__(32) rope_grad_any(const T* dy, const float* table, const T* x, const float* rstd, const T* w,
                                                    T* dx, float* partial, RopeShape s) {
  const int lane = threadIdx.x, half = s.dim / 2;
  float* dw = partial + static_cast<std::int64_t>(blockIdx.x) * s.dim;
  for (int i = lane; i < half; i += 32) dw[i] = dw[half + i] = 0.0F;
  for (std::int64_t head = blockIdx.x; head < s.tokens * s.heads; head += gridDim.x) {
    const std::int64_t token = head / s.heads, column = head % s.heads * s.dim;
    const float* angles = table + token % s.sequence * s.dim;
    const T *g = dy + token * s.from_row + column, *from = x + token * s.x_row + column;
    T* to = dx + token * s.to_row + column;
    const float scale = rstd[head];
    float dot = 0.0F;
    for (int i = lane; i < half; i += 32) {
      const float p = number(g[i]) * angles[i] + number(g[half + i]) * angles[half + i];
      const float q = number(g[half + i]) * angles[i] - number(g[i]) * angles[half + i];
      const float pa = p * number(from[i]), qb = q * number(from[half + i]);
      dw[i] += pa * scale;
      dw[half + i] += qb * scale;
      dot += pa * number(w[i]) + qb * number(w[half + i]);
    }
    const float pull = sum_of_lanes(dot) / static_cast<float>(s.dim) * scale * scale;
    for (int i = lane; i < half; i += 32) {
      const float p = number(g[i]) * angles[i] + number(g[half + i]) * angles[half + i];
      const float q = number(g[half + i]) * angles[i] - number(g[i]) * angles[half + i];
      to[i] = rounded<T>(scale * (p * number(w[i]) - number(from[i]) * pull));
      to[half + i] = rounded<T>(scale * (q * number(w[half + i]) - number(from[half + i]) * pull));
    }
  }
}

/// y = x rotated, also used for the gradient where there is no norm.
template <typename T>
void rotate(const T* x, const float* table, const T* w, T* y, float* rstd, const RopeShape& s, float direction, float epsilon,
            cudaStream_t stream) {
  constexpr int N = per_access<T>;
  const int lanes = s.lanes(N);
  if (s.tokens * s.heads == 0) return;
  if (lanes != 0 && in_packs(s.dim, N, {x, table, w, y})) {
    const unsigned blocks = blocks_of(divided_up(s.tokens * s.groups() * lanes, threads));
    by_lanes(lanes, [&](auto count) {
      if (w != nullptr)
        rope_heads<T, N, count(), true><<<blocks, threads, 0, stream>>>(x, table, w, y, rstd, s, direction, epsilon);
      else
        rope_heads<T, N, count(), false><<<blocks, threads, 0, stream>>>(x, table, w, y, rstd, s, direction, epsilon);
    });
  } else {
    rope_any<T><<<blocks_of(divided_up(s.tokens * s.heads * 32, threads)), threads, 0, stream>>>(x, table, w, y, rstd, s,
                                                                                                 direction, epsilon);
  }
  check_launch("rope");
}

template <typename T>
class Rope final : public Kernel {
 public:
  explicit Rope(const KernelRequest& r)
      : shape_(r.inputs[0], r.outputs[0], r.attributes.integer("head_dim")),
        epsilon_(static_cast<float>(r.attributes.real_or("epsilon", 0))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const T* x = in[0].as<T>();              // [tokens, heads, dim]
    const float* table = in[1].as<float>();  // [sequence, dim]: cosines, then sines
    const T* w = at(in, 2).as<T>();          // [dim] or null
    float* rstd = at(out, 1).as<float>();    // [tokens, heads] or null
    rotate(x, table, w, out[0].as<T>(), rstd, shape_, 1.0F, epsilon_, stream_of(queue));
  }

 private:
  RopeShape shape_;
  float epsilon_;
};

template <typename T, typename G>
class RopeGrad final : public Kernel {
 public:
  RopeGrad(const KernelRequest& r, const KernelSettings& s)
      : shape_(r.inputs[0], r.outputs[0], r.attributes.integer("head_dim")),
        normed_(!at(r.inputs, 4).absent()),
        parts_(blocks_backward<T> * s.multiprocessors) {
    if (normed_) shape_.x_row = r.inputs[2].leading_dimension();
  }
  std::int64_t workspace_bytes() const override { return normed_ ? static_cast<std::int64_t>(parts_) * shape_.dim * 4 : 0; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const auto [dy, table, dx, x, rstd, w, dw, add_dw] = kernels::RopeGradTensors<T, G>(in, out);
    if (!normed_) {
      rotate<T>(dy, table, nullptr, dx, nullptr, shape_, -1.0F, 0.0F, stream_of(queue));
      return;
    }
    auto* partial = static_cast<float*>(workspace);  // [parts, dim]
    constexpr int N = pack_backward;
    const int lanes = shape_.lanes(N);
    if (lanes != 0 && in_packs(shape_.dim, N, {dy, table, x, w, dx})) {
      by_lanes(lanes, [&](auto count) {
        rope_grad_heads<T, N, count()>
            <<<blocks_of(parts_), threads, 0, stream_of(queue)>>>(dy, table, x, rstd, w, dx, partial, shape_);
      });
    } else {
      rope_grad_any<T><<<blocks_of(parts_), 32, 0, stream_of(queue)>>>(dy, table, x, rstd, w, dx, partial, shape_);
    }
    check_launch("rope_grad");
    if (dw != nullptr) add_partial_sums(partial, parts_, shape_.dim, dw, add_dw, stream_of(queue));
  }

 private:
  RopeShape shape_;
  bool normed_;
  int parts_;
};

Made make_rope(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Rope>(r.inputs[0].dtype, r);
}
Made make_rope_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<RopeGrad>(r.inputs[0].dtype, kernels::dtype_or_f32(r.outputs, 1), r, s);
}

}  // namespace

CONSIST_KERNEL(rope, make_rope);
CONSIST_KERNEL(rope_grad, make_rope_grad);

}  // namespace consist::cuda
