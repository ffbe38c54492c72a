// muon_momentum, orthogonalize and muon. The products of the Newton-Schulz iterations are cuBLASLt's.
#include <algorithm>

#include "plugins/devices/cuda/kernels/launch.h"
#include "plugins/devices/cuda/kernels/numbers.cuh"
#include "plugins/devices/cuda/kernels/philox.cuh"
#include "plugins/devices/cuda/matmul.h"
#include "plugins/devices/kernels/newton_schulz.h"

namespace consist::cuda {
namespace {

constexpr int threads = 256;
constexpr int norm_blocks = 256;  // each sums a part of its own, in an order that never changes

/// body(i) for every element, threads side by side.
template <typename Body>
__global__ void __launch_bounds__(threads) for_each(std::int64_t count, Body body) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride) body(i);
}

unsigned blocks_for(std::int64_t count) {
  return blocks_of(std::clamp<std::int64_t>(divided_up(count, threads * 4), 1, 1 << 20));
}

template <typename G, typename M>
struct Move {
  const float* clip;
  const G* g;
  M* m;
  float* direction;
  float momentum;
  bool nesterov;
  __device__ void operator()(std::int64_t i) const {
    const float gradient = number(g[i]) * *clip;
    const float moved = momentum * number(m[i]) + (1.0F - momentum) * gradient;
    m[i] = rounded<M>(moved);
    direction[i] = nesterov ? momentum * moved + (1.0F - momentum) * gradient : moved;
  }
};

template <typename G, typename M>
class MuonMomentum final : public Kernel {
 public:
  explicit MuonMomentum(const KernelRequest& r)
      : momentum_(static_cast<float>(r.attributes.real("momentum"))), nesterov_(r.attributes.integer_or("nesterov", 0) != 0) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t count = in[1].shape.elements();
    if (count == 0) return;
    for_each<<<blocks_for(count), threads, 0, stream_of(queue)>>>(
        count, Move<G, M>{in[0].as<float>(), in[1].as<G>(), in[2].as<M>(), out[1].as<float>(), momentum_, nesterov_});
    check_launch("muon_momentum");
  }

 private:
  float momentum_;
  bool nesterov_;
};

__device__ double sum_over_block(double value) {
  __shared__ double sums[threads / 32];
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffffU, value, distance);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (double sum : sums) total += sum;
  }
  return total;
}

__global__ void __launch_bounds__(threads) sum_squares(const float* __restrict__ x, std::int64_t count, double* __restrict__ partial) {
  double sum = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride)
    sum += static_cast<double>(x[i]) * x[i];
  const double total = sum_over_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

/// One over the norm of which `partial` holds norm_blocks parts of the square.
__global__ void __launch_bounds__(threads) invert_norm(const double* __restrict__ partial, float* __restrict__ inverse) {
  const double total = sum_over_block(threadIdx.x < norm_blocks ? partial[threadIdx.x] : 0);
  if (threadIdx.x == 0) *inverse = 1.0F / fmaxf(static_cast<float>(sqrt(total)), kernels::newton_schulz_least_norm);
}
static_assert(norm_blocks <= threads);

template <typename T>
struct Scale {
  const float *from, *factor;
  T* to;
  __device__ void operator()(std::int64_t i) const { to[i] = rounded<T>(from[i] * *factor); }
};
template <typename T>
struct Polynomial {
  const T *gram, *square;
  T* to;
  __device__ void operator()(std::int64_t i) const {
    to[i] = rounded<T>(kernels::newton_schulz_b * number(gram[i]) + kernels::newton_schulz_c * number(square[i]));
  }
};
template <typename T, typename To>
struct Step {
  const T *x, *product;
  To* to;
  __device__ void operator()(std::int64_t i) const {
    to[i] = rounded<To>(kernels::newton_schulz_a * number(x[i]) + number(product[i]));
  }
};

/// The iterations work on x, or on xᵀ where it has more rows than columns, whose Gram matrix is the smaller one. T: what is
/// multiplied.
template <typename T>
class Orthogonalize final : public Kernel {
 public:
  Orthogonalize(const KernelRequest& r, const KernelSettings& s)
      : rows_(r.inputs[0].shape[0]),
        columns_(r.inputs[0].shape[1]),
        iterations_(r.attributes.integer("iterations")),
        less_(std::min(rows_, columns_)),
        gram_(*s.matmuls, shape(less_, less_, std::max(rows_, columns_), is_tall(), !is_tall())),
        square_(*s.matmuls, shape(less_, less_, less_, false, false)),
        apply_(*s.matmuls, shape(rows_, columns_, less_, false, false)) {}

  std::int64_t workspace_bytes() const override {
    return 3 * bytes(less_ * less_) + 2 * bytes(rows_ * columns_) + padded(norm_blocks * 8) + padded(4) + library_bytes();
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    cudaStream_t stream = stream_of(queue);
    char* free = static_cast<char*>(workspace);
    const auto take = [&](std::int64_t size) {
      char* taken = free;
      free += size;
      return taken;
    };
    auto *gram = reinterpret_cast<T*>(take(bytes(less_ * less_))), *square = reinterpret_cast<T*>(take(bytes(less_ * less_)));
    auto* polynomial = reinterpret_cast<T*>(take(bytes(less_ * less_)));
    auto *x = reinterpret_cast<T*>(take(bytes(rows_ * columns_))), *product = reinterpret_cast<T*>(take(bytes(rows_ * columns_)));
    auto* partial = reinterpret_cast<double*>(take(padded(norm_blocks * 8)));
    auto* inverse = reinterpret_cast<float*>(take(padded(4)));
    const std::int64_t count = rows_ * columns_, squares = less_ * less_;
    if (count == 0) return;
    sum_squares<<<norm_blocks, threads, 0, stream>>>(in[0].as<float>(), count, partial);
    invert_norm<<<1, threads, 0, stream>>>(partial, inverse);
    for_each<<<blocks_for(count), threads, 0, stream>>>(count, Scale<T>{in[0].as<float>(), inverse, x});
    check_launch("orthogonalize");
    for (std::int64_t i = 0; i < iterations_; ++i) {
      gram_.enqueue(x, x, gram, nullptr, free, stream);  // x xᵀ, or xᵀ x of a tall one
      square_.enqueue(gram, gram, square, nullptr, free, stream);
      for_each<<<blocks_for(squares), threads, 0, stream>>>(squares, Polynomial<T>{gram, square, polynomial});
      if (is_tall())
        apply_.enqueue(x, polynomial, product, nullptr, free, stream);
      else
        apply_.enqueue(polynomial, x, product, nullptr, free, stream);
      if (i + 1 < iterations_)
        for_each<<<blocks_for(count), threads, 0, stream>>>(count, Step<T, T>{x, product, x});
      else
        for_each<<<blocks_for(count), threads, 0, stream>>>(count, Step<T, float>{x, product, out[0].as<float>()});
      check_launch("orthogonalize");
    }
  }

 private:
  static MatmulShape shape(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b) {
    constexpr DType type = sizeof(T) == 4 ? DType::f32 : DType::bf16;
    return {.m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b, .a = type, .b = type, .d = type};
  }
  bool is_tall() const { return rows_ > columns_; }
  static std::int64_t padded(std::int64_t size) { return (size + 255) / 256 * 256; }
  static std::int64_t bytes(std::int64_t elements) { return padded(elements * static_cast<std::int64_t>(sizeof(T))); }
  std::int64_t library_bytes() const {
    return std::max({gram_.workspace_bytes(), square_.workspace_bytes(), apply_.workspace_bytes()});
  }

  std::int64_t rows_, columns_, iterations_, less_;
  Matmul gram_, square_, apply_;
};

template <typename P>
struct Apply {
  const float* scalars;
  int last;  ///< of the scalars: the step's number
  P* p;
  const float* orthogonal;
  float* master;
  float scale, decay;
  bool stochastic;
  std::uint32_t seed;
  __device__ void operator()(std::int64_t i) const {
    const float rate = scalars[0];
    const float before = master != nullptr ? master[i] : number(p[i]);
    float updated = before * (1.0F - rate * decay) - rate * scale * orthogonal[i];
    if (master != nullptr) master[i] = updated;
    if (stochastic && master == nullptr && sizeof(P) == 2) {
      const auto step = static_cast<std::uint32_t>(scalars[last]);
      const uint4 bits = philox({static_cast<std::uint32_t>(i / 4), static_cast<std::uint32_t>(i / 4 >> 32), step, 1}, {seed, 0});
      const std::uint32_t value = __float_as_uint(updated), random = word(bits, static_cast<int>(i % 4)) >> 16;
      if ((value & 0x7f800000U) != 0x7f800000U) updated = __uint_as_float((value + random) & 0xffff0000U);
    }
    p[i] = rounded<P>(updated);
  }
};

template <typename P>
class Muon final : public Kernel {
 public:
  explicit Muon(const KernelRequest& r)
      : scale_(static_cast<float>(r.attributes.real("scale"))),
        decay_(static_cast<float>(r.attributes.real("weight_decay"))),
        stochastic_(r.attributes.integer_or("stochastic_rounding", 0) != 0),
        seed_(static_cast<std::uint32_t>(r.attributes.integer_or("seed", 0))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue queue) override {
    const std::int64_t count = in[1].shape.elements();
    if (count == 0) return;
    const auto last = static_cast<int>(in[0].shape.elements() - 1);
    float* master = at(in, 3).absent() ? nullptr : in[3].as<float>();
    for_each<<<blocks_for(count), threads, 0, stream_of(queue)>>>(
        count, Apply<P>{in[0].as<float>(), last, in[1].as<P>(), in[2].as<float>(), master, scale_, decay_, stochastic_, seed_});
    check_launch("muon");
  }

 private:
  float scale_, decay_;
  bool stochastic_;
  std::uint32_t seed_;
};

}  // namespace

Made make_muon_momentum(const KernelRequest& r, const KernelSettings&) {
  const DType g = r.inputs[1].dtype, m = r.inputs[2].dtype;
  if (g == DType::f32 && m == DType::f32) return std::make_unique<MuonMomentum<float, float>>(r);
  if (g == DType::f32 && m == DType::bf16) return std::make_unique<MuonMomentum<float, bf16>>(r);
  if (g == DType::bf16 && m == DType::f32) return std::make_unique<MuonMomentum<bf16, float>>(r);
  if (g == DType::bf16 && m == DType::bf16) return std::make_unique<MuonMomentum<bf16, bf16>>(r);
  return nullptr;
}
Made make_orthogonalize(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<Orthogonalize>(kernels::products_of(r), r, s);
}
Made make_muon(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Muon>(r.inputs[1].dtype, r);
}

}  // namespace consist::cuda
