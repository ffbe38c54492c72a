// rms_norm and rms_norm_grad. Rows are tokens of c channels; each is read once and stays in registers between its sum and its
// use. Rows that are too long for that, or not aligned, take the kernels *_any, which read twice.
#include <cuda_pipeline.h>

#include "plugins/devices/cuda/kernels/fp8/amax.cuh"
#include "plugins/devices/cuda/kernels/dense/column_sums.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"
#include "plugins/devices/common/rms_norm.h"
#include "plugins/devices/common/with_amax.h"

namespace consist::cuda {
namespace {

constexpr int block = 256;   // threads of a block, as long as rows are no longer: as many rows as fit
constexpr int widest = 512;  // threads of a row at most
constexpr int most_warps = widest / 32;

/// Packs of a row that one thread holds: as many as fit into its registers, backward beside its part of dw.
constexpr int held_forward = 4, held_backward = 2;

/// Rows that are on their way or being worked on in each place of a block, backward: there are too few threads (of so many
/// registers) to hide the memory otherwise. Of two blocks of `block` threads the many fit into 227 KiB of shared memory.
constexpr int many_rows = 4, few_rows = 2;

/// Layout of a block of threads over rows of c elements.
struct Layout {
  dim3 threads;  ///< of a row (x), rows of a block (y)
  bool fits;     ///< no thread needs to hold more than `held` packs
  Layout(std::int64_t c, int pack, int held) {
    const std::int64_t across = divided_up(divided_up(divided_up(c, pack), held), 32) * 32;
    fits = across <= widest;
    threads = dim3(static_cast<unsigned>(across),
                   static_cast<unsigned>(std::max<std::int64_t>(1, block / std::max<std::int64_t>(across, 1))));
  }
};

/// With `amax`, that becomes the largest magnitude of y; it must be 0 before.
template <typename T, int N, bool with_amax = false, int held = held_forward>
__global__ void __launch_bounds__(widest)
    rms_norm_rows(const T* __restrict__ x, const T* __restrict__ residual, const T* __restrict__ w, T* y, T* sum,
                  float* __restrict__ rstd, std::int64_t rows, int c, float epsilon, float* amax = nullptr) {
  __shared__ float scratch[most_warps];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool present = row < rows;  // all threads of the block meet in sum_of_row
  const std::int64_t base = row * c;
  Words<T, N> values[held];
#pragma unroll
  for (int k = 0; k < held; ++k) {
    const int i = (threadIdx.x + k * blockDim.x) * N;
    if (present && i < c) values[k] = load_words<N>(x + base + i);
  }
  if (residual != nullptr) {
    Words<T, N> added[held];
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const int i = (threadIdx.x + k * blockDim.x) * N;
      if (present && i < c) added[k] = load_words<N>(residual + base + i);
    }
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const int i = (threadIdx.x + k * blockDim.x) * N;
      if (!present || i >= c) continue;
#pragma unroll
      for (int j = 0; j < N; j += 2) values[k].set_pair(j, values[k][j] + added[k][j], values[k][j + 1] + added[k][j + 1]);
      store_words<N>(sum + base + i, values[k]);
    }
  }
  float squares = 0.0F;
#pragma unroll
  for (int k = 0; k < held; ++k) {
    const int i = (threadIdx.x + k * blockDim.x) * N;
    if (!present || i >= c) continue;
#pragma unroll
    for (int j = 0; j < N; ++j) squares += values[k][j] * values[k][j];
  }
  const float scale = 1.0F / sqrtf(sum_of_row(squares, scratch) / static_cast<float>(c) + epsilon);
  if (present && threadIdx.x == 0) rstd[row] = scale;
  [[maybe_unused]] PairAmax found;
#pragma unroll
  for (int k = 0; k < held; ++k) {
    const int i = (threadIdx.x + k * blockDim.x) * N;
    if (!present || i >= c) continue;
    const Words<T, N> weight = load_words<N>(w + i);
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      values[k].set_pair(j, values[k][j] * scale * weight[j], values[k][j + 1] * scale * weight[j + 1]);
    }
    store_words<N>(y + base + i, values[k]);
    if constexpr (with_amax) found.add(values[k]);
  }
  if constexpr (with_amax) raise_amax(found.bits(), amax);
}

/// One row per block, element by element.
template <typename T>
__global__ void __launch_bounds__(widest)
    rms_norm_any(const T* x, const T* residual, const T* w, T* y, T* sum, float* rstd, std::int64_t c, float epsilon) {
  __shared__ float scratch[most_warps];
  const std::int64_t row = blockIdx.x, base = row * c;
  float squares = 0.0F;
  for (std::int64_t i = threadIdx.x; i < c; i += blockDim.x) {
    T value = x[base + i];
    if (residual != nullptr) sum[base + i] = value = rounded<T>(number(value) + number(residual[base + i]));
    squares += number(value) * number(value);
  }
  const float scale = 1.0F / sqrtf(sum_of_row(squares, scratch) / static_cast<float>(c) + epsilon);
  if (threadIdx.x == 0) rstd[row] = scale;
  const T* normalised = residual != nullptr ? sum : x;  // each thread reads what it wrote itself
  for (std::int64_t i = threadIdx.x; i < c; i += blockDim.x)
    y[base + i] = rounded<T>(number(normalised[base + i]) * scale * number(w[i]));
}

/// Loads of a thread in flight, of dy, x and what is added to dx: packs in shared memory that no other thread touches.
template <typename T, int N, int held>
struct Fetched {
  Words<T, N>* dy;  // the first of `held` each, which lie as far apart as there are threads
  Words<T, N>* x;
  Words<T, N>* added;

  static __host__ __device__ constexpr unsigned bytes(unsigned threads) { return sizeof(Words<T, N>) * 3 * held * threads; }
  static __device__ __forceinline__ Fetched at(unsigned char* rows, int slot) {
    const unsigned threads = blockDim.x * blockDim.y, apart = held * threads;
    auto* mine = reinterpret_cast<Words<T, N>*>(rows + slot * bytes(threads)) + threadIdx.y * blockDim.x + threadIdx.x;
    return {mine, mine + apart, mine + 2 * apart};
  }
};

template <typename T, int N>
__device__ __forceinline__ void fetch(Words<T, N>* to, const T* from) {
  __pipeline_memcpy_async(to, from, sizeof(Words<T, N>));
}

/// Begins to bring row `row` of dy, x and `added` into a slot, if there is one; `added` may be null.
template <typename T, int N, int held>
__device__ __forceinline__ void fetch_row(unsigned char* fetched, int slot, const T* dy, const T* x, const T* added,
                                          std::int64_t row, std::int64_t rows, int c) {
  if (row < rows) {
    const unsigned threads = blockDim.x * blockDim.y;
    const auto to = Fetched<T, N, held>::at(fetched, slot);
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const int i = (threadIdx.x + k * blockDim.x) * N;
      if (i >= c) continue;
      fetch<T, N>(to.dy + k * threads, dy + row * c + i);
      fetch<T, N>(to.x + k * threads, x + row * c + i);
      if (added != nullptr) fetch<T, N>(to.added + k * threads, added + row * c + i);
    }
  }
  __pipeline_commit();  // also of nothing: they are counted
}

/// Adds up dw of the block's rows, in order, into the block's row of `partial`. `shared` [c].
template <int N, int held>
__device__ __forceinline__ void store_sums(Pack<float, N> (&dw)[held], float* shared, float* __restrict__ partial, int c) {
  for (unsigned y = 1; y < blockDim.y; ++y) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const int i = (threadIdx.x + k * blockDim.x) * N;
      if (threadIdx.y != y || i >= c) continue;
      store_pack<N>(shared + i, dw[k]);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const int i = (threadIdx.x + k * blockDim.x) * N;
      if (threadIdx.y != 0 || i >= c) continue;
      const Pack<float, N> other = load_pack<N>(shared + i);
#pragma unroll
      for (int j = 0; j < N; ++j) dw[k].element[j] += other.element[j];
    }
  }
#pragma unroll
  for (int k = 0; k < held; ++k) {
    const int i = (threadIdx.x + k * blockDim.x) * N;
    if (threadIdx.y == 0 && i < c) store_pack<N>(partial + blockIdx.x * static_cast<std::int64_t>(c) + i, dw[k]);
  }
}

/// dx of the block's rows (every gridDim.x-th group of blockDim.y rows), and the block's part of dw. `added` may be null or dx
/// itself, whose elements each thread reads before it writes them. Dynamic shared memory: `underway` times Fetched::bytes().
template <typename T, int N, int underway, int held = held_backward>
__global__ void __launch_bounds__(widest)
    rms_norm_grad_rows(const T* __restrict__ dy, const T* __restrict__ x, const float* __restrict__ rstd, const T* __restrict__ w,
                       const T* added, T* dx, float* __restrict__ partial, std::int64_t rows, int c) {
  extern __shared__ __align__(16) unsigned char fetched[];
  __shared__ float scratch[2][most_warps];
  const unsigned threads = blockDim.x * blockDim.y;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y,
                     first_row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const auto fetch_next = [&](std::int64_t row, int slot) { fetch_row<T, N, held>(fetched, slot, dy, x, added, row, rows, c); };
#pragma unroll
  for (int ahead = 0; ahead < underway - 1; ++ahead) fetch_next(first_row + ahead * step, ahead);

  Words<T, N> weight[held];
  Pack<float, N> dw[held] = {};
#pragma unroll
  for (int k = 0; k < held; ++k) {
    const int i = (threadIdx.x + k * blockDim.x) * N;
    if (i < c) weight[k] = load_words<N>(w + i);
  }
  float next_rstd = first_row < rows ? rstd[first_row] : 0.0F;
  int parity = 0, slot = 0;
  for (std::int64_t row = first_row; row - threadIdx.y < rows; row += step, parity ^= 1, slot = (slot + 1) % underway) {
    const bool present = row < rows;  // all threads of the block meet in the sum
    const float scale = next_rstd;
    if (row + step < rows) next_rstd = rstd[row + step];
    __pipeline_wait_prior(underway - 2);
    fetch_next(row + (underway - 1) * step, (slot + underway - 1) % underway);
    const auto now = Fetched<T, N, held>::at(fetched, slot);
    Words<T, N> now_dy[held], now_x[held];
    float dot = 0.0F;
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const int i = (threadIdx.x + k * blockDim.x) * N;
      if (!present || i >= c) continue;
      now_dy[k] = now.dy[k * threads];
      now_x[k] = now.x[k * threads];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float gx = now_dy[k][j] * now_x[k][j];
        dot += gx * weight[k][j];
        dw[k].element[j] += gx * scale;
      }
    }
    const float pull = sum_of_row(dot, scratch[parity]) / static_cast<float>(c) * scale * scale;
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const int i = (threadIdx.x + k * blockDim.x) * N;
      if (!present || i >= c) continue;
      Words<T, N> made;
      if (added != nullptr) made = now.added[k * threads];
      const auto made_at = [&](int j) {
        const float d = scale * (now_dy[k][j] * weight[k][j] - now_x[k][j] * pull);
        return added != nullptr ? made[j] + d : d;
      };
#pragma unroll
      for (int j = 0; j < N; j += 2) made.set_pair(j, made_at(j), made_at(j + 1));
      store_words<N>(dx + row * c + i, made);
    }
  }
  store_sums<N>(dw, reinterpret_cast<float*>(fetched), partial, c);
}

/// The same element by element: partial [gridDim.x, c] is summed in place.
template <typename T>
__global__ void __launch_bounds__(widest)
    rms_norm_grad_any(const T* dy, const T* x, const float* rstd, const T* w, const T* added, T* dx, float* partial,
                      std::int64_t rows, std::int64_t c) {
  __shared__ float scratch[2][most_warps];
  float* dw = partial + blockIdx.x * c;
  for (std::int64_t i = threadIdx.x; i < c; i += blockDim.x) dw[i] = 0.0F;
  int parity = 0;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x, parity ^= 1) {
    const std::int64_t base = row * c;
    const float scale = rstd[row];
    float dot = 0.0F;
    for (std::int64_t i = threadIdx.x; i < c; i += blockDim.x) {
      const float gx = number(dy[base + i]) * number(x[base + i]);
      dot += gx * number(w[i]);
      dw[i] += gx * scale;
    }
    const float pull = sum_of_row(dot, scratch[parity]) / static_cast<float>(c) * scale * scale;
    for (std::int64_t i = threadIdx.x; i < c; i += blockDim.x) {
      const float d = scale * (number(dy[base + i]) * number(w[i]) - number(x[base + i]) * pull);
      dx[base + i] = rounded<T>(added != nullptr ? number(added[base + i]) + d : d);
    }
  }
}

template <typename T>
class RmsNorm final : public Kernel {
 public:
  explicit RmsNorm(const KernelRequest& r) : epsilon_(static_cast<float>(r.attributes.real("epsilon"))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const auto [x, residual, w, y, sum, rstd, rows, c] = kernels::RmsNormTensors<T>(in, out);
    constexpr int N = per_access<T>;
    if (rows == 0) return;
    const Layout layout(c, N, held_forward);
    if (layout.fits && in_packs(c, N, {x, residual, w, y, sum})) {
      const dim3 threads = layout.threads;
      rms_norm_rows<T, N><<<blocks_of(divided_up(rows, threads.y)), threads, 0, stream_of(queue)>>>(
          x, residual, w, y, sum, rstd, rows, static_cast<int>(c), epsilon_);
    } else {
      rms_norm_any<T><<<blocks_of(rows), widest, 0, stream_of(queue)>>>(x, residual, w, y, sum, rstd, c, epsilon_);
    }
    check_launch("rms_norm");
  }

 private:
  float epsilon_;
};

/// Both in one pass where a row fits into registers.
class RmsNormAmax final : public Kernel {
 public:
  RmsNormAmax(const KernelRequest& r, Made apart)
      : epsilon_(static_cast<float>(r.attributes.real("epsilon"))), apart_(std::move(apart)) {}
  std::int64_t workspace_bytes() const override { return apart_->workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const auto [x, residual, w, y, sum, rstd, rows, c] = kernels::RmsNormTensors<bf16>(in, out);
    constexpr int N = per_access<bf16>;
    const Layout layout(c, N, held_forward);
    if (rows == 0 || !layout.fits || !in_packs(c, N, {x, residual, w, y, sum})) return apart_->launch(in, out, workspace, queue);
    float* amax = out[3].as<float>();
    clear_amax(amax, stream_of(queue));
    const dim3 threads = layout.threads;
    rms_norm_rows<bf16, N, true><<<blocks_of(divided_up(rows, threads.y)), threads, 0, stream_of(queue)>>>(
        x, residual, w, y, sum, rstd, rows, static_cast<int>(c), epsilon_, amax);
    check_launch("rms_norm_amax");
  }

 private:
  float epsilon_;
  Made apart_;
};

template <typename T, typename G>
class RmsNormGrad final : public Kernel {
 public:
  RmsNormGrad(const KernelRequest& r, const KernelSettings& s) : rows_(r.inputs[1].shape.rows()), c_(r.inputs[1].shape.last()) {
    // At most as many blocks as run at once, and no more than take equally many turns: each leaves a row of partial sums.
    const dim3 threads = Layout(c_, per_access<T>, held_backward).threads;
    const std::int64_t turns = std::max<std::int64_t>(1, divided_up(rows_, threads.y)), most = 2 * s.multiprocessors;
    parts_ = divided_up(turns, divided_up(turns, most));
    int available = 0;
    cuda::check(cudaDeviceGetAttribute(&available, cudaDevAttrMaxSharedMemoryPerBlockOptin, s.device),
                "ask for the size of shared memory");
    available -= 2 * most_warps * static_cast<int>(sizeof(float));  // the kernel's own
    if (!take<many_rows>(threads, available)) take<few_rows>(threads, available);
  }
  std::int64_t workspace_bytes() const override { return parts_ * c_ * 4; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const auto [dy, x, rstd, w, added, add_dw, dx, dw, rows, c] = kernels::RmsNormGradTensors<T, G>(in, out);
    auto* partial = static_cast<float*>(workspace);  // [parts, c]
    constexpr int N = per_access<T>;
    const Layout layout(c, N, held_backward);
    if (rows_kernel_ != nullptr && layout.fits && in_packs(c, N, {dy, x, w, added, dx})) {
      rows_kernel_<<<blocks_of(parts_), layout.threads, shared_, stream_of(queue)>>>(dy, x, rstd, w, added, dx, partial, rows,
                                                                                     static_cast<int>(c));
    } else {
      rms_norm_grad_any<T><<<blocks_of(parts_), widest, 0, stream_of(queue)>>>(dy, x, rstd, w, added, dx, partial, rows, c);
    }
    check_launch("rms_norm_grad");
    if (dw != nullptr) add_partial_sums(partial, parts_, c, dw, add_dw, stream_of(queue));
  }

 private:
  /// Uses the kernel with so many rows underway if a block of it finds the shared memory that it needs.
  template <int underway>
  bool take(dim3 threads, int available) {
    using Bytes = Fetched<T, per_access<T>, held_backward>;
    const int most = std::min(underway * static_cast<int>(Bytes::bytes(widest)), available);
    shared_ = underway * Bytes::bytes(threads.x * threads.y);
    if (static_cast<int>(shared_) > most) return false;
    rows_kernel_ = rms_norm_grad_rows<T, per_access<T>, underway>;
    cuda::check(cudaFuncSetAttribute(rows_kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
                "ask for shared memory for rms_norm_grad");
    return true;
  }

  std::int64_t rows_, c_, parts_;
  unsigned shared_ = 0;  // bytes of a block
  void (*rows_kernel_)(const T*, const T*, const float*, const T*, const T*, T*, float*, std::int64_t, int) = nullptr;
};

Made make_rms_norm_amax(const KernelRequest& r, const KernelSettings& s) {
  Made apart = kernels::WithAmax::make(r, s);
  const bool of_y = kernels::amax_outputs(r) == std::vector<std::size_t>{0};
  if (!apart || !of_y) return apart;
  return std::make_unique<RmsNormAmax>(r, std::move(apart));
}
Made make_rms_norm(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<RmsNorm>(r.inputs[0].dtype, r);
}
Made make_rms_norm_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<RmsNormGrad>(r.inputs[1].dtype, kernels::dtype_or_f32(r.outputs, 1), r, s);
}

}  // namespace

CONSIST_KERNEL(rms_norm_amax, make_rms_norm_amax);
CONSIST_KERNEL(rms_norm, make_rms_norm);
CONSIST_KERNEL(rms_norm_grad, make_rms_norm_grad);

}  // namespace consist::cuda
