// swiglu and swiglu_grad: h = silu(gate)·up, silu(x) = x·sigmoid(x). Elementwise, one pass. All but h and dh may be columns of
// wider tensors; then a block works on one row.
#include "plugins/devices/cuda/kernels/fp8/amax.cuh"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"
#include "plugins/devices/common/with_amax.h"

namespace consist::cuda {
namespace {

constexpr int swiglu_unroll = 2;

/// The division of elements over blocks: tensors that are all dense are one row.
struct Rows {
  std::int64_t count, columns;
  std::int64_t h, gate, up, dgate, dup;  ///< elements from row to row; h stands for dh, too

  Rows(const Buffer& whole, const Buffer& gate_like, const Buffer& up_like, const Buffer& dgate_like, const Buffer& dup_like)
      : count(whole.shape.rows()),
        columns(whole.shape.last()),
        h(columns),
        gate(gate_like.leading_dimension()),
        up(up_like.leading_dimension()),
        dgate(dgate_like.leading_dimension()),
        dup(dup_like.leading_dimension()) {
    if (gate != columns || up != columns || dgate != columns || dup != columns) return;
    columns *= count;
    count = count == 0 ? 0 : 1;
  }
  bool empty() const { return count == 0 || columns == 0; }
  bool packs(int pack) const { return in_step(pack, {columns, h, gate, up, dgate, dup}); }
  /// Blocks of a row in packs of `pack`.
  unsigned blocks(int pack) const { return blocks_of(divided_up(columns / pack, threads * swiglu_unroll)); }
  unsigned grid(int pack) const { return blocks_of(count * blocks(pack)); }
};

/// Precise to f32: the quick exponential's relative error grows with |x|.
template <typename T>
__device__ __forceinline__ float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}
/// Its error is far below bf16's rounding. Beyond |x| of 87 the divisor overflows and the quotient is 0.
template <>
__device__ __forceinline__ float sigmoid<bf16>(float x) {
  return __fdividef(1.0F, 1.0F + __expf(-x));
}

/// With `amax`, that becomes the largest magnitude of h; it must be 0 before.
template <typename T, int N, bool with_amax = false>
__global__ void __launch_bounds__(threads) swiglu_packs(const T* __restrict__ gate, const T* __restrict__ up, T* __restrict__ h,
                                                        Rows rows, unsigned blocks_of_row, float* amax = nullptr) {
  [[maybe_unused]] PairAmax found;
  const unsigned row = blockIdx.x / blocks_of_row;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x - row * blocks_of_row) * (threads * swiglu_unroll) + threadIdx.x,
                     packs = rows.columns / N;
  gate += row * rows.gate;
  up += row * rows.up;
  h += row * rows.h;
  Pack<T, N> g[swiglu_unroll], u[swiglu_unroll];
#pragma unroll
  for (int k = 0; k < swiglu_unroll; ++k) {
    const std::int64_t pack = first + k * threads;
    if (pack < packs) {
      g[k] = load_pack<N>(gate + pack * N);
      u[k] = load_pack<N>(up + pack * N);
    }
  }
#pragma unroll
  for (int k = 0; k < swiglu_unroll; ++k) {
    const std::int64_t pack = first + k * threads;
    if (pack >= packs) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float x = number(g[k].element[i]);
      g[k].element[i] = rounded<T>(x * sigmoid<T>(x) * number(u[k].element[i]));
    }
    store_pack<N>(h + pack * N, g[k]);
    if constexpr (with_amax) found.add(g[k]);
  }
  if constexpr (with_amax) raise_amax(found.bits(), amax);
}

/// dup = dh·silu(gate); dgate = dh·up·s·(1 + gate·(1 − s)), s = sigmoid(gate). dgate and dup may take the place of gate and up.
/// With amaxes, these become the largest magnitudes of dgate and dup; they must be 0 before.
template <typename T, int N, bool with_amax = false>
__global__ void __launch_bounds__(threads)
    swiglu_grad_packs(const T* dh, const T* gate, const T* up, T* dgate, T* dup, Rows rows, unsigned blocks_of_row,
                      float* gate_amax = nullptr, float* up_amax = nullptr) {
  [[maybe_unused]] PairAmax of_gate, of_up;
  const unsigned row = blockIdx.x / blocks_of_row;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x - row * blocks_of_row) * (threads * swiglu_unroll) + threadIdx.x,
                     packs = rows.columns / N;
  dh += row * rows.h;
  gate += row * rows.gate;
  up += row * rows.up;
  dgate += row * rows.dgate;
  dup += row * rows.dup;
  Pack<T, N> d[swiglu_unroll], g[swiglu_unroll], u[swiglu_unroll];
#pragma unroll
  for (int k = 0; k < swiglu_unroll; ++k) {
    const std::int64_t pack = first + k * threads;
    if (pack < packs) {
      d[k] = load_pack<N>(dh + pack * N);
      g[k] = load_pack<N>(gate + pack * N);
      u[k] = load_pack<N>(up + pack * N);
    }
  }
#pragma unroll
  for (int k = 0; k < swiglu_unroll; ++k) {
    const std::int64_t pack = first + k * threads;
    if (pack >= packs) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float x = number(g[k].element[i]), dy = number(d[k].element[i]), s = sigmoid<T>(x);
      g[k].element[i] = rounded<T>(dy * number(u[k].element[i]) * s * (1.0F + x * (1.0F - s)));
      u[k].element[i] = rounded<T>(dy * x * s);
    }
    store_pack<N>(dgate + pack * N, g[k]);
    store_pack<N>(dup + pack * N, u[k]);
    if constexpr (with_amax) {
      of_gate.add(g[k]);
      of_up.add(u[k]);
    }
  }
  if constexpr (with_amax) {
    raise_amax(of_gate.bits(), gate_amax);
    __syncthreads();
    raise_amax(of_up.bits(), up_amax);
  }
}

template <typename T>
class Swiglu final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const T *gate = in[0].as<T>(), *up = in[1].as<T>();
    T* h = out[0].as<T>();
    const Rows rows(out[0], in[0], in[1], in[0], in[1]);
    constexpr int N = per_access<T>;
    if (rows.empty()) return;
    if (rows.packs(N) && in_packs(rows.columns, N, {gate, up, h}))
      swiglu_packs<T, N><<<rows.grid(N), threads, 0, stream_of(queue)>>>(gate, up, h, rows, rows.blocks(N));
    else
      swiglu_packs<T, 1><<<rows.grid(1), threads, 0, stream_of(queue)>>>(gate, up, h, rows, rows.blocks(1));
    check_launch("swiglu");
  }
};

template <typename T>
class SwigluGrad final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const T *dh = in[0].as<T>(), *gate = in[1].as<T>(), *up = in[2].as<T>();
    T *dgate = out[0].as<T>(), *dup = out[1].as<T>();
    const Rows rows(in[0], in[1], in[2], out[0], out[1]);
    constexpr int N = per_access<T>;
    if (rows.empty()) return;
    if (rows.packs(N) && in_packs(rows.columns, N, {dh, gate, up, dgate, dup})) {
      swiglu_grad_packs<T, N><<<rows.grid(N), threads, 0, stream_of(queue)>>>(dh, gate, up, dgate, dup, rows, rows.blocks(N));
    } else {
      swiglu_grad_packs<T, 1><<<rows.grid(1), threads, 0, stream_of(queue)>>>(dh, gate, up, dgate, dup, rows, rows.blocks(1));
    }
    check_launch("swiglu_grad");
  }
};

/// Both in one pass where the tensors can be moved in packs.
class SwigluAmax final : public Kernel {
 public:
  explicit SwigluAmax(Made apart) : apart_(std::move(apart)) {}
  std::int64_t workspace_bytes() const override { return apart_->workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const bf16 *gate = in[0].as<bf16>(), *up = in[1].as<bf16>();
    bf16* h = out[0].as<bf16>();
    const Rows rows(out[0], in[0], in[1], in[0], in[1]);
    constexpr int N = per_access<bf16>;
    if (rows.empty() || !in_packs(rows.columns, N, {gate, up, h})) return apart_->launch(in, out, workspace, queue);
    clear_amax(out[1].as<float>(), stream_of(queue));
    swiglu_packs<bf16, N, true>
        <<<rows.grid(N), threads, 0, stream_of(queue)>>>(gate, up, h, rows, rows.blocks(N), out[1].as<float>());
    check_launch("swiglu_amax");
  }

 private:
  Made apart_;
};

class SwigluGradAmax final : public Kernel {
 public:
  explicit SwigluGradAmax(Made apart) : apart_(std::move(apart)) {}
  std::int64_t workspace_bytes() const override { return apart_->workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const bf16 *dh = in[0].as<bf16>(), *gate = in[1].as<bf16>(), *up = in[2].as<bf16>();
    bf16 *dgate = out[0].as<bf16>(), *dup = out[1].as<bf16>();
    const Rows rows(in[0], in[1], in[2], out[0], out[1]);
    constexpr int N = per_access<bf16>;
    if (rows.empty() || !in_packs(rows.columns, N, {dh, gate, up, dgate, dup})) return apart_->launch(in, out, workspace, queue);
    clear_amax(out[2].as<float>(), stream_of(queue));
    clear_amax(out[3].as<float>(), stream_of(queue));
    swiglu_grad_packs<bf16, N, true><<<rows.grid(N), threads, 0, stream_of(queue)>>>(
        dh, gate, up, dgate, dup, rows, rows.blocks(N), out[2].as<float>(), out[3].as<float>());
    check_launch("swiglu_grad_amax");
  }

 private:
  Made apart_;
};

Made make_swiglu_amax(const KernelRequest& r, const KernelSettings& s) {
  Made apart = kernels::WithAmax::make(r, s);
  return apart ? std::make_unique<SwigluAmax>(std::move(apart)) : nullptr;
}
Made make_swiglu_grad_amax(const KernelRequest& r, const KernelSettings& s) {
  Made apart = kernels::WithAmax::make(r, s);
  const bool both = kernels::amax_outputs(r).size() == 2;
  if (!apart || !both) return apart;
  return std::make_unique<SwigluGradAmax>(std::move(apart));
}
Made make_swiglu(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Swiglu>(r.inputs[0].dtype);
}
Made make_swiglu_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<SwigluGrad>(r.inputs[1].dtype);
}

}  // namespace

CONSIST_KERNEL(swiglu_amax, make_swiglu_amax);
CONSIST_KERNEL(swiglu_grad_amax, make_swiglu_grad_amax);
CONSIST_KERNEL(swiglu, make_swiglu);
CONSIST_KERNEL(swiglu_grad, make_swiglu_grad);

}  // namespace consist::cuda
