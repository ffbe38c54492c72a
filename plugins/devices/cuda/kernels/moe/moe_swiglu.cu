// moe_swiglu and its gradient: h = w·silu(gate)·up, gate and up the halves of a row, w the row's weight. A warp per row.
#include "plugins/devices/cuda/kernels/fp8/amax.cuh"
#include "plugins/devices/cuda/kernels/fp8/fp8.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int swiglu_unroll = 3;  // packs in flight: an expert's 768 columns are three bf16 packs a lane

/// Precise to f32; in bf16 quicker, with an error far below the rounding (as in swiglu.cu).
template <typename T>
__device__ __forceinline__ float sigmoid(float x) {
  if constexpr (sizeof(T) == 4)
    return 1.0F / (1.0F + expf(-x));
  else
    return __fdividef(1.0F, 1.0F + __expf(-x));
}

/// gate_up [rows, 2·columns], h [rows, columns]. With `amax`, that becomes the largest magnitude of h; it must be 0 before.
template <typename T, int N, bool with_amax = false>
__global__ void __launch_bounds__(threads)
    gate_rows(const T* __restrict__ gate_up, const float* __restrict__ weights, T* __restrict__ h, std::int64_t rows,
              std::int64_t columns, float* amax = nullptr) {
  [[maybe_unused]] PairAmax found;
  const std::int64_t row = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (!with_amax && row >= rows) return;
  const std::int64_t packs = row < rows ? columns / N : 0;
  const T *const gate = gate_up + row * 2 * columns, *const up = gate + columns;
  const float weight = row < rows ? weights[row] : 0.0F;
  for (std::int64_t first = lane; first < packs; first += 32 * swiglu_unroll) {
    Pack<T, N> g[swiglu_unroll], u[swiglu_unroll];
#pragma unroll
    for (int k = 0; k < swiglu_unroll; ++k) {
      const std::int64_t pack = first + 32 * k;
      if (pack >= packs) continue;
      g[k] = load_pack<N>(gate + pack * N);
      u[k] = load_pack<N>(up + pack * N);
    }
#pragma unroll
    for (int k = 0; k < swiglu_unroll; ++k) {
      const std::int64_t pack = first + 32 * k;
      if (pack >= packs) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float x = number(g[k].element[i]);
        g[k].element[i] = rounded<T>(weight * (x * sigmoid<T>(x)) * number(u[k].element[i]));
      }
      store_pack<N>(h + row * columns + pack * N, g[k]);
      if constexpr (with_amax) found.add(g[k]);
    }
  }
  if constexpr (with_amax) raise_amax(found.bits(), amax);
}

/// dup = w·dh·silu(gate); dgate = w·dh·up·s·(1 + gate·(1 − s)), s = sigmoid(gate); dweights = Σ over columns of dh·silu(gate)·up.
/// dgate_up may take the place of gate_up. With `amax`, that becomes the largest magnitude of dgate_up; it must be 0 before.
template <typename T, int N, bool with_amax = false>
__global__ void __launch_bounds__(threads)
    gate_rows_grad(const T* __restrict__ dh, const T* gate_up, const float* __restrict__ weights, T* dgate_up,
                   float* __restrict__ dweights, std::int64_t rows, std::int64_t columns, float* amax = nullptr) {
  [[maybe_unused]] PairAmax found;
  const std::int64_t row = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (!with_amax && row >= rows) return;
  const std::int64_t packs = row < rows ? columns / N : 0;
  const T *const gate = gate_up + row * 2 * columns, *const up = gate + columns;
  T *const dgate = dgate_up + row * 2 * columns, *const dup = dgate + columns;
  const float weight = row < rows ? weights[row] : 0.0F;
  float sum = 0;
  for (std::int64_t first = lane; first < packs; first += 32 * swiglu_unroll) {
    Pack<T, N> d[swiglu_unroll], g[swiglu_unroll], u[swiglu_unroll];
#pragma unroll
    for (int k = 0; k < swiglu_unroll; ++k) {
      const std::int64_t pack = first + 32 * k;
      if (pack >= packs) continue;
      d[k] = load_pack<N>(dh + row * columns + pack * N);
      g[k] = load_pack<N>(gate + pack * N);
      u[k] = load_pack<N>(up + pack * N);
    }
#pragma unroll
    for (int k = 0; k < swiglu_unroll; ++k) {
      const std::int64_t pack = first + 32 * k;
      if (pack >= packs) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float x = number(g[k].element[i]), y = number(u[k].element[i]), dy = number(d[k].element[i]), s = sigmoid<T>(x);
        sum += dy * (x * s) * y;
        g[k].element[i] = rounded<T>(weight * dy * y * s * (1.0F + x * (1.0F - s)));
        u[k].element[i] = rounded<T>(weight * dy * x * s);
      }
      store_pack<N>(dgate + pack * N, g[k]);
      store_pack<N>(dup + pack * N, u[k]);
      if constexpr (with_amax) {
        found.add(g[k]);
        found.add(u[k]);
      }
    }
  }
  sum = sum_of_lanes(sum);
  if (lane == 0 && row < rows) dweights[row] = sum;
  if constexpr (with_amax) raise_amax(found.bits(), amax);
}

template <typename T, bool with_amax = false>
class MoeSwiglu final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t rows = out[0].shape.rows(), columns = out[0].shape.last();
    float* const amax = with_amax ? out[1].as<float>() : nullptr;
    if (with_amax) clear_amax(amax, stream_of(queue));
    if (rows == 0 || columns == 0) return;
    const bool packs = in_packs(columns, per_access<T>, {in[0].data, out[0].data});
    const auto run = packs ? gate_rows<T, per_access<T>, with_amax> : gate_rows<T, 1, with_amax>;
    run<<<blocks_of(divided_up(rows, warps)), threads, 0, stream_of(queue)>>>(in[0].as<T>(), in[1].as<float>(), out[0].as<T>(),
                                                                              rows, columns, amax);
    check_launch("moe_swiglu");
  }
};

template <typename T, bool with_amax = false>
class MoeSwigluGrad final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t rows = in[0].shape.rows(), columns = in[0].shape.last();
    float* const amax = with_amax ? out[2].as<float>() : nullptr;
    if (with_amax) clear_amax(amax, stream_of(queue));
    if (rows == 0) return;
    const bool packs = in_packs(columns, per_access<T>, {in[0].data, in[1].data, out[0].data});
    const auto run = packs ? gate_rows_grad<T, per_access<T>, with_amax> : gate_rows_grad<T, 1, with_amax>;
    run<<<blocks_of(divided_up(rows, warps)), threads, 0, stream_of(queue)>>>(
        in[0].as<T>(), in[1].as<T>(), in[2].as<float>(), out[0].as<T>(), out[1].as<float>(), rows, columns, amax);
    check_launch("moe_swiglu_grad");
  }
};

Made make_moe_swiglu(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<MoeSwiglu>(r.inputs[0].dtype);
}
Made make_moe_swiglu_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<MoeSwigluGrad>(r.inputs[0].dtype);
}
Made make_moe_swiglu_amax(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  return r.inputs[0].dtype == DType::bf16 ? std::make_unique<MoeSwiglu<bf16, true>>() : nullptr;
}
Made make_moe_swiglu_grad_amax(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  return r.inputs[0].dtype == DType::bf16 ? std::make_unique<MoeSwigluGrad<bf16, true>>() : nullptr;
}

}  // namespace

CONSIST_KERNEL(moe_swiglu, make_moe_swiglu);
CONSIST_KERNEL(moe_swiglu_grad, make_moe_swiglu_grad);
CONSIST_KERNEL(moe_swiglu_amax, make_moe_swiglu_amax);
CONSIST_KERNEL(moe_swiglu_grad_amax, make_moe_swiglu_grad_amax);

}  // namespace consist::cuda
