// add, scale, cast and copy. Of the first three: one pass, every thread moves `elementwise_unroll` packs that are all loaded
// before the first is used.
#include <algorithm>

#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

constexpr int elementwise_unroll = 2;

/// c = a + b in a's place.
template <typename T, typename Added, int N>
__global__ void __launch_bounds__(threads) add_packs(T* a, const Added* __restrict__ b, std::int64_t packs) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (threads * elementwise_unroll) + threadIdx.x;
  Pack<T, N> left[elementwise_unroll];
  Pack<Added, N> right[elementwise_unroll];
#pragma unroll
  for (int u = 0; u < elementwise_unroll; ++u) {
    const std::int64_t pack = first + u * threads;
    if (pack < packs) {
      left[u] = load_pack<N>(a + pack * N);
      right[u] = load_pack<N>(b + pack * N);
    }
  }
#pragma unroll
  for (int u = 0; u < elementwise_unroll; ++u) {
    const std::int64_t pack = first + u * threads;
    if (pack >= packs) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) left[u].element[i] = rounded<T>(number(left[u].element[i]) + number(right[u].element[i]));
    store_pack<N>(a + pack * N, left[u]);
  }
}

/// y = factor x.
template <typename T, int N>
__global__ void __launch_bounds__(threads) scale_packs(const T* __restrict__ x, T* __restrict__ y, float factor,
                                                       std::int64_t packs) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (threads * elementwise_unroll) + threadIdx.x;
  Pack<T, N> values[elementwise_unroll];
#pragma unroll
  for (int u = 0; u < elementwise_unroll; ++u) {
    const std::int64_t pack = first + u * threads;
    if (pack < packs) values[u] = load_pack<N>(x + pack * N);
  }
#pragma unroll
  for (int u = 0; u < elementwise_unroll; ++u) {
    const std::int64_t pack = first + u * threads;
    if (pack >= packs) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) values[u].element[i] = rounded<T>(factor * number(values[u].element[i]));
    store_pack<N>(y + pack * N, values[u]);
  }
}

/// The same of rows of `columns` packs, which lie `from` and `to` elements apart: views of wider tensors.
template <typename T, int N>
__global__ void __launch_bounds__(threads) scale_rows(const T* __restrict__ x, T* __restrict__ y, float factor, std::int64_t packs,
                                                      std::int64_t columns, std::int64_t from, std::int64_t to) {
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t row = pack / columns, column = pack % columns * N;
  Pack<T, N> values = load_pack<N>(x + row * from + column);
#pragma unroll
  for (int i = 0; i < N; ++i) values.element[i] = rounded<T>(factor * number(values.element[i]));
  store_pack<N>(y + row * to + column, values);
}

template <typename From, typename To, int N>
__global__ void __launch_bounds__(threads) cast_packs(const From* __restrict__ x, To* __restrict__ y, std::int64_t packs) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (threads * elementwise_unroll) + threadIdx.x;
  Pack<From, N> from[elementwise_unroll];
#pragma unroll
  for (int u = 0; u < elementwise_unroll; ++u) {
    const std::int64_t pack = first + u * threads;
    if (pack < packs) from[u] = load_pack<N>(x + pack * N);
  }
#pragma unroll
  for (int u = 0; u < elementwise_unroll; ++u) {
    const std::int64_t pack = first + u * threads;
    if (pack >= packs) continue;
    Pack<To, N> to;
#pragma unroll
    for (int i = 0; i < N; ++i) to.element[i] = rounded<To>(number(from[u].element[i]));
    store_pack<N>(y + pack * N, to);
  }
}

unsigned blocks_for(std::int64_t packs) {
  return blocks_of(divided_up(packs, threads * elementwise_unroll));
}

template <typename T, typename Added>
class Add final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    for (std::size_t pair = 0; pair < out.size(); ++pair) {
      T* a = out[pair].as<T>();  // = in[2 * pair]
      const Added* b = in[2 * pair + 1].as<Added>();
      const std::int64_t count = out[pair].shape.elements();
      constexpr int N = per_access<T>;
      if (count == 0) continue;
      if (in_packs(count, N, {a, b}))
        add_packs<T, Added, N><<<blocks_for(count / N), threads, 0, stream_of(queue)>>>(a, b, count / N);
      else
        add_packs<T, Added, 1><<<blocks_for(count), threads, 0, stream_of(queue)>>>(a, b, count);
      check_launch("add");
    }
  }
};

template <typename T>
class Scale final : public Kernel {
 public:
  explicit Scale(float factor) : factor_(factor) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const T* x = in[0].as<T>();
    T* y = out[0].as<T>();
    const std::int64_t count = in[0].shape.elements();
    constexpr int N = per_access<T>;
    if (count == 0) return;
    if (in[0].row_stride != 0 || out[0].row_stride != 0) {
      const std::int64_t columns = in[0].shape.last(), from = in[0].leading_dimension(), to = out[0].leading_dimension();
      if (in_packs(columns, N, {x, y}) && from % N == 0 && to % N == 0)
        scale_rows<T, N><<<blocks_of(divided_up(count / N, threads)), threads, 0, stream_of(queue)>>>(x, y, factor_, count / N, columns / N, from, to);
      else
        scale_rows<T, 1><<<blocks_of(divided_up(count, threads)), threads, 0, stream_of(queue)>>>(x, y, factor_, count, columns, from, to);
    } else if (in_packs(count, N, {x, y}))
      scale_packs<T, N><<<blocks_for(count / N), threads, 0, stream_of(queue)>>>(x, y, factor_, count / N);
    else
      scale_packs<T, 1><<<blocks_for(count), threads, 0, stream_of(queue)>>>(x, y, factor_, count);
    check_launch("scale");
  }

 private:
  float factor_;
};

/// Between any two memories: the addresses tell which (unified addressing). Row by row where one side is a strided view.
class Copy final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t size = static_cast<std::int64_t>(size_of(in[0].dtype)), bytes = in[0].shape.elements() * size;
    if (bytes == 0) return;
    if (in[0].row_stride != 0 || out[0].row_stride != 0) {
      const auto of_row = [size](std::int64_t elements) { return static_cast<std::size_t>(elements * size); };
      cuda::check(cudaMemcpy2DAsync(out[0].data, of_row(out[0].leading_dimension()), in[0].data,
                                    of_row(in[0].leading_dimension()), of_row(in[0].shape.last()),
                                    static_cast<std::size_t>(in[0].shape.rows()), cudaMemcpyDefault, stream_of(queue)),
                  "copy of rows");
      return;
    }
    cuda::check(cudaMemcpyAsync(out[0].data, in[0].data, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_of(queue)),
                "copy");
  }
};

template <typename From, typename To>
class Cast final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const From* x = in[0].as<From>();
    To* y = out[0].as<To>();
    const std::int64_t count = in[0].shape.elements();
    // Packs of 16 bytes on the wider side, 8 on the other: both stay whole sectors for a warp.
    constexpr int N = std::min(per_access<From>, per_access<To>);
    if (count == 0) return;
    if (in_packs(count, N, {x, y}))
      cast_packs<From, To, N><<<blocks_for(count / N), threads, 0, stream_of(queue)>>>(x, y, count / N);
    else
      cast_packs<From, To, 1><<<blocks_for(count), threads, 0, stream_of(queue)>>>(x, y, count);
    check_launch("cast");
  }
};

Made make_add(const KernelRequest& r, const KernelSettings&) {
  const auto types = kernels::added_dtypes(r);
  if (!types) return nullptr;
  if (types->first == DType::bf16) return std::make_unique<Add<bf16, bf16>>();
  if (types->second == DType::bf16) return std::make_unique<Add<float, bf16>>();
  return std::make_unique<Add<float, float>>();
}

Made make_scale(const KernelRequest& r, const KernelSettings&) {
  const auto factor = static_cast<float>(r.attributes.real("factor"));
  if (r.inputs[0].dtype == DType::bf16) return std::make_unique<Scale<bf16>>(factor);
  if (r.inputs[0].dtype == DType::f32) return std::make_unique<Scale<float>>(factor);
  return nullptr;
}

Made make_cast(const KernelRequest& r, const KernelSettings&) {
  const DType from = r.inputs[0].dtype, to = r.outputs[0].dtype;
  if (from == DType::f32 && to == DType::f32) return std::make_unique<Cast<float, float>>();
  if (from == DType::f32 && to == DType::bf16) return std::make_unique<Cast<float, bf16>>();
  if (from == DType::bf16 && to == DType::f32) return std::make_unique<Cast<bf16, float>>();
  if (from == DType::bf16 && to == DType::bf16) return std::make_unique<Cast<bf16, bf16>>();
  return nullptr;
}

Made make_copy(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<Copy>();
}

}  // namespace

CONSIST_KERNEL(add, make_add);
CONSIST_KERNEL(scale, make_scale);
CONSIST_KERNEL(cast, make_cast);
CONSIST_KERNEL(copy, make_copy);

}  // namespace consist::cuda
