// adamw: all parameters of an instruction that have the same dtypes in one launch, each element read once and written once.
#include <vector>

#include "plugins/devices/cuda/kernels/launch.h"
#include "plugins/devices/cuda/kernels/numbers.cuh"
#include "plugins/devices/cuda/kernels/philox.cuh"
#include "plugins/devices/cuda/kernels/tensor_list.cuh"

namespace consist::cuda {
namespace {

constexpr int threads = 256;
constexpr int chunk = 8192;  // elements of a block

struct Updated {
  void* p;
  const void* g;
  float* master;  ///< or null: then p is the weight itself
  void *m, *v;
  std::int64_t count;
  std::uint32_t first;
  std::uint32_t number;  ///< of the tensor in the instruction: a part of the key of its random bits
};

struct Constants {
  float beta1, beta2, epsilon, decay;
  bool stochastic;
  std::uint32_t seed;
};

/// What is the same for every element in this step.
struct Step {
  float coefficient, shrink, step, root;
  __device__ Step(const float* hyper, const float* clip, const Constants& k)
      : coefficient(*clip), shrink(1.0F - hyper[0] * k.decay), step(hyper[0] / hyper[1]), root(1.0F / sqrtf(hyper[2])) {}
};

__device__ __forceinline__ float quick_root(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));  // within one unit in the last place; 0 of 0
  return root;
}

__device__ __forceinline__ void update(float& weight, float& m, float& v, float g, const Step& s, const Constants& k) {
  g *= s.coefficient;
  m = k.beta1 * m + (1.0F - k.beta1) * g;
  v = k.beta2 * v + (1.0F - k.beta2) * g * g;
  weight = weight * s.shrink - __fdividef(s.step * m, quick_root(v) * s.root + k.epsilon);
}

/// Up with the probability of the part that is cut off, so that small updates are not lost on average.
template <typename T>
__device__ __forceinline__ T rounded_at_random(float value, std::uint32_t random16);
template <>
__device__ __forceinline__ float rounded_at_random<float>(float value, std::uint32_t) {
  return value;
}
template <>
__device__ __forceinline__ bf16 rounded_at_random<bf16>(float value, std::uint32_t random16) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7f800000U) == 0x7f800000U) return rounded<bf16>(value);
  return __ushort_as_bfloat16(static_cast<unsigned short>((bits + random16) >> 16));
}

/// Random bits of 8 consecutive elements, by what they round: 0 m, 1 v, 2 p. The same for an element however it is reached.
__device__ __forceinline__ uint4 random_bits(std::int64_t eight, std::uint32_t use, std::uint32_t step, std::uint32_t tensor,
                                             std::uint32_t seed) {
  return philox({static_cast<std::uint32_t>(eight), static_cast<std::uint32_t>(eight >> 32), use, step}, {seed, tensor});
}

/// Elements of one access: 8 where anything is bf16 (and then f32 tensors move in two accesses), else 4.
template <typename P, typename M>
constexpr int pack_of = per_access<P> > per_access<M> ? per_access<P> : per_access<M>;

/// N elements from `start` on.
template <typename P, typename G, typename M, int N>
__device__ __forceinline__ void update_pack(const Updated& t, std::int64_t start, const Step& s, const Constants& k,
                                            std::uint32_t step) {
  P* p = static_cast<P*>(t.p) + start;
  M *m = static_cast<M*>(t.m) + start, *v = static_cast<M*>(t.v) + start;
  const bool mastered = t.master != nullptr;
  const Pack<G, N> g = load_pack<N>(static_cast<const G*>(t.g) + start);
  Pack<M, N> m_pack = load_pack<N>(m), v_pack = load_pack<N>(v);
  Pack<float, N> master;
  Pack<P, N> p_pack;
  if (mastered)
    master = load_pack<N>(t.master + start);
  else
    p_pack = load_pack<N>(p);
  uint4 for_m, for_v, for_p;
  if (k.stochastic) {
    if constexpr (sizeof(M) == 2) {
      for_m = random_bits(start / 8, 0, step, t.number, k.seed);
      for_v = random_bits(start / 8, 1, step, t.number, k.seed);
    }
    if constexpr (sizeof(P) == 2) for_p = random_bits(start / 8, 2, step, t.number, k.seed);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int eighth = N == 8 ? i : static_cast<int>(start % 8) + i;
    float weight = mastered ? master.element[i] : number(p_pack.element[i]), m1 = number(m_pack.element[i]),
          m2 = number(v_pack.element[i]);
    update(weight, m1, m2, number(g.element[i]), s, k);
    if (sizeof(M) == 2 && k.stochastic) {
      m_pack.element[i] = rounded_at_random<M>(m1, bits16(for_m, eighth));
      v_pack.element[i] = rounded_at_random<M>(m2, bits16(for_v, eighth));
    } else {
      m_pack.element[i] = rounded<M>(m1);
      v_pack.element[i] = rounded<M>(m2);
    }
    // Beside a master, p is that rounded to nearest.
    p_pack.element[i] =
        sizeof(P) == 2 && k.stochastic && !mastered ? rounded_at_random<P>(weight, bits16(for_p, eighth)) : rounded<P>(weight);
    master.element[i] = weight;
  }
  store_pack<N>(m, m_pack);
  store_pack<N>(v, v_pack);
  store_pack<N>(p, p_pack);
  if (mastered) store_pack<N>(t.master + start, master);
}

template <typename P, typename G, typename M>
__global__ void __launch_bounds__(threads)
    update_tensors(const __grid_constant__ TensorList<Updated> list, const float* __restrict__ hyper,
                   const float* __restrict__ clip, Constants k) {
  constexpr int N = pack_of<P, M>;
  const Updated& t = list.entry[entry_of(list, blockIdx.x)];
  const Step s(hyper, clip, k);
  const auto step = static_cast<std::uint32_t>(hyper[3]);
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x - t.first) * chunk, end = min(t.count, start + chunk);
  const auto misaligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16; };
  const bool packs = (misaligned(t.p) | misaligned(t.g) | misaligned(t.master) | misaligned(t.m) | misaligned(t.v)) == 0;
  const std::int64_t in_packs = packs ? start + (end - start) / N * N : start;
  for (std::int64_t i = start + threadIdx.x * N; i < in_packs; i += threads * N) update_pack<P, G, M, N>(t, i, s, k, step);
  for (std::int64_t i = in_packs + threadIdx.x; i < end; i += threads) update_pack<P, G, M, 1>(t, i, s, k, step);
}

class AdamW final : public Kernel {
 public:
  explicit AdamW(const KernelRequest& r) {
    k_.beta1 = static_cast<float>(r.attributes.real("beta1"));
    k_.beta2 = static_cast<float>(r.attributes.real("beta2"));
    k_.epsilon = static_cast<float>(r.attributes.real("epsilon"));
    k_.decay = static_cast<float>(r.attributes.real("weight_decay"));
    k_.stochastic = r.attributes.integer_or("stochastic_rounding", 0) != 0;
    k_.seed = static_cast<std::uint32_t>(r.attributes.integer_or("seed", 0));
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue queue) override {
    by_types<float, float, float>(DType::f32, DType::f32, DType::f32, in, stream_of(queue));
    by_types<float, float, bf16>(DType::f32, DType::f32, DType::bf16, in, stream_of(queue));
    by_types<bf16, float, float>(DType::bf16, DType::f32, DType::f32, in, stream_of(queue));
    by_types<bf16, float, bf16>(DType::bf16, DType::f32, DType::bf16, in, stream_of(queue));
    by_types<bf16, bf16, float>(DType::bf16, DType::bf16, DType::f32, in, stream_of(queue));
    by_types<bf16, bf16, bf16>(DType::bf16, DType::bf16, DType::bf16, in, stream_of(queue));
  }

 private:
  template <typename P, typename G, typename M>
  void by_types(DType p, DType g, DType m, std::span<const Buffer> in, cudaStream_t stream) {
    const auto flush = [&] {
      if (list_.count == 0) return;
      update_tensors<P, G, M><<<list_.chunks, threads, 0, stream>>>(list_, in[0].as<float>(), in[1].as<float>(), k_);
      check_launch("adamw");
      list_.clear();
    };
    list_.clear();
    for (std::size_t i = 2; i + 4 < in.size(); i += 5) {
      const std::int64_t count = in[i].shape.elements();
      if (in[i].dtype != p || in[i + 1].dtype != g || in[i + 3].dtype != m || count == 0) continue;
      if (list_.full()) flush();
      list_.add({in[i].data, in[i + 1].data, in[i + 2].as<float>(), in[i + 3].data, in[i + 4].data, count, 0,
                 static_cast<std::uint32_t>(i)},
                count, chunk);
    }
    flush();
  }

  Constants k_{};
  TensorList<Updated> list_;
};

}  // namespace

Made make_adamw(const KernelRequest& r, const KernelSettings&) {
  for (std::size_t i = 2; i + 4 < r.inputs.size(); i += 5) {
    const DType p = r.inputs[i].dtype, g = r.inputs[i + 1].dtype;
    if (!is_float(p) || !is_float(g) || (p == DType::f32 && g != DType::f32)) return nullptr;
    if (!r.inputs[i + 2].absent() && r.inputs[i + 2].dtype != DType::f32) return nullptr;
    if (!is_float(r.inputs[i + 3].dtype) || r.inputs[i + 3].dtype != r.inputs[i + 4].dtype) return nullptr;
  }
  return std::make_unique<AdamW>(r);
}

}  // namespace consist::cuda
