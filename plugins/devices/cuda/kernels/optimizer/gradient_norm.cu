// sum_of_squares and clip_coefficient.
#include <vector>

#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"
#include "plugins/devices/cuda/kernels/optimizer/tensor_list.cuh"

namespace consist::cuda {
namespace {

constexpr int norm_chunk = 32'768;  // elements that a block takes at once
constexpr int norm_unroll = 4;
constexpr int blocks_per_multiprocessor = 6;

struct Summed {
  const void* data;
  std::int64_t count;
  std::uint32_t first;
  bool narrow;  ///< bf16, else f32
};

/// f32 over the few elements that a thread has of a chunk; the caller goes on in f64.
template <typename T>
__device__ __forceinline__ float squares_of_chunk(const T* values, int count) {
  constexpr int N = per_access<T>;
  float sum = 0.0F;
  if (reinterpret_cast<std::uintptr_t>(values) % 16 != 0) {
    for (int i = threadIdx.x; i < count; i += threads) sum += number(values[i]) * number(values[i]);
    return sum;
  }
  const int packs = count / N;
  for (int first = threadIdx.x; first < packs; first += threads * norm_unroll) {
    Pack<T, N> loaded[norm_unroll];
#pragma unroll
    for (int u = 0; u < norm_unroll; ++u) {
      if (first + u * threads < packs) loaded[u] = load_pack<N>(values + (first + u * threads) * N);
    }
#pragma unroll
    for (int u = 0; u < norm_unroll; ++u) {
      if (first + u * threads >= packs) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) sum += number(loaded[u].element[i]) * number(loaded[u].element[i]);
    }
  }
  for (int i = packs * N + threadIdx.x; i < count; i += threads) sum += number(values[i]) * number(values[i]);
  return sum;
}

__global__ void __launch_bounds__(threads)
    sum_squares(const __grid_constant__ TensorList<Summed> list, double* __restrict__ partial) {
  double sum = 0;
  for (std::uint32_t index = blockIdx.x; index < list.chunks; index += gridDim.x) {
    const Summed& tensor = list.entry[entry_of(list, index)];
    const std::int64_t start = static_cast<std::int64_t>(index - tensor.first) * norm_chunk;
    const int count = static_cast<int>(min(static_cast<std::int64_t>(norm_chunk), tensor.count - start));
    sum += tensor.narrow ? squares_of_chunk(static_cast<const bf16*>(tensor.data) + start, count)
                         : squares_of_chunk(static_cast<const float*>(tensor.data) + start, count);
  }
  const double total = sum_of_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(1024) add_squares(const double* __restrict__ partial, int parts, float* __restrict__ sum) {
  double value = 0;
  for (int i = threadIdx.x; i < parts; i += blockDim.x) value += partial[i];
  const double total = sum_of_block(value);
  if (threadIdx.x == 0) *sum = static_cast<float>(total);
}

class SumOfSquares final : public Kernel {
 public:
  SumOfSquares(const KernelRequest& r, const KernelSettings& s)
      : blocks_(blocks_per_multiprocessor * s.multiprocessors),
        launches_(static_cast<int>(divided_up(static_cast<std::int64_t>(r.inputs.size()), TensorList<Summed>::capacity))) {}
  std::int64_t workspace_bytes() const override { return static_cast<std::int64_t>(launches_) * blocks_ * 8; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    auto* partial = static_cast<double*>(workspace);  // [launches, blocks]
    int parts = 0;
    const auto flush = [&] {
      if (list_.count == 0) return;
      sum_squares<<<static_cast<unsigned>(blocks_), threads, 0, stream_of(queue)>>>(list_, partial + parts);
      check_launch("sum_of_squares");
      parts += blocks_;
      list_.clear();
    };
    list_.clear();
    for (const Buffer& t : in) {
      const std::int64_t count = t.shape.elements();
      if (count == 0) continue;
      if (list_.full()) flush();
      list_.add({t.data, count, 0, t.dtype == DType::bf16}, count, norm_chunk);
    }
    flush();
    add_squares<<<1, 1024, 0, stream_of(queue)>>>(partial, parts, out[0].as<float>());
    check_launch("add_squares");
  }

 private:
  int blocks_, launches_;
  TensorList<Summed> list_;
};

__global__ void clip(const float* __restrict__ sum, float* __restrict__ norm, float* __restrict__ coefficient, float max_norm) {
  const float root = sqrtf(*sum);
  *norm = root;
  // min() would take 1 where the norm is NaN: let that spoil the step visibly, as torch does.
  const float wanted = max_norm / (root + 1e-6F);
  *coefficient = max_norm > 0.0F && !(wanted >= 1.0F) ? wanted : 1.0F;
}

class ClipCoefficient final : public Kernel {
 public:
  explicit ClipCoefficient(const KernelRequest& r) : max_norm_(static_cast<float>(r.attributes.real("max_norm"))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    clip<<<1, 1, 0, stream_of(queue)>>>(in[0].as<float>(), out[0].as<float>(), out[1].as<float>(), max_norm_);
    check_launch("clip_coefficient");
  }

 private:
  float max_norm_;
};

/// The rate becomes 0 and the coefficient -1 where overflow is not 0.
__global__ void hold(const float* __restrict__ scalars, const float* __restrict__ coefficient, const float* __restrict__ overflow,
                     int count, float* __restrict__ held_scalars, float* __restrict__ held_coefficient) {
  const bool held = *overflow != 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    held_scalars[i] = held && i == 0 ? 0.0F : scalars[i];
  if (threadIdx.x == 0) *held_coefficient = held ? -1.0F : *coefficient;
}

class HoldUpdate final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    hold<<<1, 32, 0, stream_of(queue)>>>(in[0].as<float>(), in[1].as<float>(), in[2].as<float>(),
                                         static_cast<int>(in[0].shape.elements()), out[0].as<float>(), out[1].as<float>());
    check_launch("hold_update");
  }
};

Made make_hold_update(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<HoldUpdate>();
}
Made make_sum_of_squares(const KernelRequest& r, const KernelSettings& s) {
  if (!std::all_of(r.inputs.begin(), r.inputs.end(), [](const Buffer& t) { return is_float(t.dtype); })) return nullptr;
  return std::make_unique<SumOfSquares>(r, s);
}
Made make_clip_coefficient(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<ClipCoefficient>(r);
}

}  // namespace

CONSIST_KERNEL(hold_update, make_hold_update);
CONSIST_KERNEL(sum_of_squares, make_sum_of_squares);
CONSIST_KERNEL(clip_coefficient, make_clip_coefficient);

}  // namespace consist::cuda
