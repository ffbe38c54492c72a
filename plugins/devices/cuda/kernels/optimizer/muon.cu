// muon_momentum, orthogonalize and muon. The products of the Newton-Schulz iterations are cuBLASLt's.
#include <algorithm>

#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"
#include "plugins/devices/cuda/kernels/optimizer/stochastic.cuh"
#include "plugins/devices/cuda/matmul.h"
#include "plugins/devices/common/newton_schulz.h"
#include "plugins/devices/common/update_rules.h"

namespace consist::cuda {
namespace {

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
  kernels::MuonMomentumRule rule;
  __device__ void operator()(std::int64_t i) const {
    if (*clip < 0) {  // held
      direction[i] = 0;
      return;
    }
    const float gradient = number(g[i]) * *clip;
    const float moved = rule.moved(number(m[i]), gradient);
    m[i] = rounded<M>(moved);
    direction[i] = rule.direction(moved, gradient);
  }
};

template <typename G, typename M>
class MuonMomentum final : public Kernel {
 public:
  explicit MuonMomentum(const KernelRequest& r) : rule_(r.attributes) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t count = in[1].shape.elements();
    if (count == 0) return;
    for_each<<<blocks_for(count), threads, 0, stream_of(queue)>>>(
        count, Move<G, M>{in[0].as<float>(), in[1].as<G>(), in[2].as<M>(), out[1].as<float>(), rule_});
    check_launch("muon_momentum");
  }

 private:
  kernels::MuonMomentumRule rule_;
};

__global__ void __launch_bounds__(threads) sum_squares(const float* __restrict__ x, std::int64_t count, double* __restrict__ partial) {
  double sum = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride)
    sum += static_cast<double>(x[i]) * x[i];
  const double total = sum_of_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

/// One over the norm of which `partial` holds norm_blocks parts of the square.
__global__ void __launch_bounds__(threads) invert_norm(const double* __restrict__ partial, float* __restrict__ inverse) {
  const double total = sum_of_block(threadIdx.x < norm_blocks ? partial[threadIdx.x] : 0);
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
struct MuonStep {
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
        for_each<<<blocks_for(count), threads, 0, stream>>>(count, MuonStep<T, T>{x, product, x});
      else
        for_each<<<blocks_for(count), threads, 0, stream>>>(count, MuonStep<T, float>{x, product, out[0].as<float>()});
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
  kernels::MuonRule rule;
  kernels::UpdateRounding rounding;
  __device__ void operator()(std::int64_t i) const {
    float updated = rule(master != nullptr ? master[i] : number(p[i]), orthogonal[i], scalars[0]);
    if (master != nullptr) master[i] = updated;
    if (rounding.stochastic && master == nullptr && sizeof(P) == 2) {
      const uint4 bits = random_bits(i / 4, static_cast<std::uint32_t>(scalars[last]), 0, rounding.seed, 1);
      updated = raised_and_cut(updated, word(bits, static_cast<int>(i % 4)) >> 16);
    }
    p[i] = rounded<P>(updated);
  }
};

template <typename P>
class Muon final : public Kernel {
 public:
  explicit Muon(const KernelRequest& r) : rule_(r.attributes), rounding_(r.attributes) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue queue) override {
    const std::int64_t count = in[1].shape.elements();
    if (count == 0) return;
    const auto last = static_cast<int>(in[0].shape.elements() - 1);
    float* master = at(in, 3).absent() ? nullptr : in[3].as<float>();
    for_each<<<blocks_for(count), threads, 0, stream_of(queue)>>>(
        count, Apply<P>{in[0].as<float>(), last, in[1].as<P>(), in[2].as<float>(), master, rule_, rounding_});
    check_launch("muon");
  }

 private:
  kernels::MuonRule rule_;
  kernels::UpdateRounding rounding_;
};

Made make_muon_momentum(const KernelRequest& r, const KernelSettings&) {
  return kernels::for_any_floats<MuonMomentum, bf16>(r.inputs[1].dtype, r.inputs[2].dtype, r);
}
Made make_orthogonalize(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<Orthogonalize>(kernels::products_of(r), r, s);
}
Made make_muon(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Muon>(r.inputs[1].dtype, r);
}

}  // namespace

CONSIST_KERNEL(muon_momentum, make_muon_momentum);
CONSIST_KERNEL(orthogonalize, make_orthogonalize);
CONSIST_KERNEL(muon, make_muon);

}  // namespace consist::cuda
