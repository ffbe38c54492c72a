// adamw: all parameters of an instruction that have the same dtypes in one launch, each element read once and written once.
#include <vector>

#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"
#include "plugins/devices/cuda/kernels/optimizer/stochastic.cuh"
#include "plugins/devices/cuda/kernels/optimizer/tensor_list.cuh"
#include "plugins/devices/common/update_rules.h"

namespace consist::cuda {
namespace {

struct AdamwTensor {
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
  std::uint32_t seed;
};

/// Factors that are the same for every element in this step.
struct AdamwStep {
  float coefficient, shrink, step, root;
  __device__ AdamwStep(const float* scalars, const float* clip, const Constants& k)
      : coefficient(*clip), shrink(1.0F - scalars[0] * k.decay), step(scalars[0] / scalars[1]), root(1.0F / sqrtf(scalars[2])) {}
};

__device__ __forceinline__ float quick_root(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));  // within one unit in the last place; 0 of 0
  return root;
}

__device__ __forceinline__ void update(float& weight, float& m, float& v, float g, const AdamwStep& s, const Constants& k) {
  g *= s.coefficient;
  m = k.beta1 * m + (1.0F - k.beta1) * g;
  v = k.beta2 * v + (1.0F - k.beta2) * g * g;
  weight = weight * s.shrink - __fdividef(s.step * m, quick_root(v) * s.root + k.epsilon);
}

/// Values of an element that the update changes, in f32.
struct Element {
  float weight, m, v;
};

/// 16 of the random bits each for m and p, and for v a hash of all 32.
template <typename P, typename M, bool mastered>
__device__ __forceinline__ void raise(Element& e, std::uint32_t random) {
  if constexpr (sizeof(M) == 2) {
    e.m = raised(e.m, random & 0xffffU);
    e.v = raised(e.v, random * 0x9E3779B9U >> 16);
  }
  if constexpr (sizeof(P) == 2 && !mastered) e.weight = raised(e.weight, random >> 16);
}

/// A value as it is stored: bf16 cut off if it was raised before, else rounded to nearest.
template <bool was_raised, typename T>
__device__ __forceinline__ T stored(float value) {
  if constexpr (was_raised && sizeof(T) == 2)
    return __ushort_as_bfloat16(static_cast<unsigned short>(__float_as_uint(value) >> 16));
  else
    return rounded<T>(value);
}
template <bool was_raised, typename T, int N>
__device__ __forceinline__ void set_pair(Words<T, N>& words, int i, float first, float second) {
  if constexpr (was_raised && sizeof(T) == 2)
    words.word[i / 2] = __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632);
  else
    words.set_pair(i, first, second);
}

/// Elements that a thread takes at once. Where anything is f32 all accesses to that are whole sectors side by side with 4; only
/// tensors that are all bf16 gain from 8.
template <typename P, typename G, typename M, bool mastered>
constexpr int pack_of = sizeof(P) == 2 && sizeof(G) == 2 && sizeof(M) == 2 && !mastered ? 8 : 4;

/// N elements from `start` on.
template <typename P, typename G, typename M, bool mastered, bool stochastic, int N>
__device__ __forceinline__ void update_pack(const AdamwTensor& t, std::int64_t start, const AdamwStep& s, const Constants& k,
                                            std::uint32_t step) {
  P* p = static_cast<P*>(t.p) + start;
  M *m = static_cast<M*>(t.m) + start, *v = static_cast<M*>(t.v) + start;
  const Words<G, N> g = load_words<N>(static_cast<const G*>(t.g) + start);
  Words<M, N> m_words = load_words<N>(m), v_words = load_words<N>(v);
  Words<float, N> master;
  Words<P, N> p_words;
  if constexpr (mastered)
    master = load_words<N>(t.master + start);
  else
    p_words = load_words<N>(p);
  uint4 random[N / 4];
  if constexpr (stochastic) {
#pragma unroll
    for (int i = 0; i < N; i += 4) random[i / 4] = random_bits(start / 4 + i / 4, step, t.number, k.seed);
  }
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    Element pair[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      Element& e = pair[j];
      if constexpr (mastered)
        e.weight = master[i + j];
      else
        e.weight = p_words[i + j];
      e.m = m_words[i + j];
      e.v = v_words[i + j];
      update(e.weight, e.m, e.v, g[i + j], s, k);
      if constexpr (mastered) master.word[i + j] = __float_as_uint(e.weight);
      if constexpr (stochastic) raise<P, M, mastered>(e, word(random[i / 4], (i + j) % 4));
    }
    set_pair<stochastic>(m_words, i, pair[0].m, pair[1].m);
    set_pair<stochastic>(v_words, i, pair[0].v, pair[1].v);
    set_pair<stochastic && !mastered>(p_words, i, pair[0].weight,
                                      pair[1].weight);  // beside a master, p is that rounded to nearest
  }
  store_words<N>(m, m_words);
  store_words<N>(v, v_words);
  store_words<N>(p, p_words);
  if constexpr (mastered) store_words<N>(t.master + start, master);
}

/// Element i alone: the ends of tensors, and views that are not aligned.
template <typename P, typename G, typename M, bool mastered, bool stochastic>
__device__ __forceinline__ void update_single(const AdamwTensor& t, std::int64_t i, const AdamwStep& s, const Constants& k,
                                              std::uint32_t step) {
  P* p = static_cast<P*>(t.p) + i;
  M *m = static_cast<M*>(t.m) + i, *v = static_cast<M*>(t.v) + i;
  Element e{mastered ? t.master[i] : number(*p), number(*m), number(*v)};
  update(e.weight, e.m, e.v, number(static_cast<const G*>(t.g)[i]), s, k);
  if (mastered) t.master[i] = e.weight;
  if constexpr (stochastic) raise<P, M, mastered>(e, word(random_bits(i / 4, step, t.number, k.seed), static_cast<int>(i % 4)));
  *m = stored<stochastic, M>(e.m);
  *v = stored<stochastic, M>(e.v);
  *p = stored < stochastic && !mastered, P > (e.weight);
}

template <typename P, typename G, typename M, bool mastered, bool stochastic>
__global__ void __launch_bounds__(threads, 3)
    update_tensors(const __grid_constant__ TensorList<AdamwTensor> list, const float* __restrict__ scalars,
                   const float* __restrict__ clip, Constants k) {
  if (*clip < 0) return;  // held
  constexpr int N = pack_of<P, G, M, mastered>;
  const AdamwTensor& t = list.entry[entry_of(list, blockIdx.x)];
  const AdamwStep s(scalars, clip, k);
  const auto step = static_cast<std::uint32_t>(scalars[3]);
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x - t.first) * chunk, end = min(t.count, start + chunk);
  const auto misaligned = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16; };
  const bool packs = (misaligned(t.p) | misaligned(t.g) | misaligned(t.master) | misaligned(t.m) | misaligned(t.v)) == 0;
  const std::int64_t in_packs = packs ? start + (end - start) / N * N : start;
  for (std::int64_t i = start + threadIdx.x * N; i < in_packs; i += threads * N) {
    update_pack<P, G, M, mastered, stochastic, N>(t, i, s, k, step);
  }
  for (std::int64_t i = in_packs + threadIdx.x; i < end; i += threads)
    update_single<P, G, M, mastered, stochastic>(t, i, s, k, step);
}

class AdamW final : public Kernel {
 public:
  explicit AdamW(const KernelRequest& r) {
    k_.beta1 = static_cast<float>(r.attributes.real("beta1"));
    k_.beta2 = static_cast<float>(r.attributes.real("beta2"));
    k_.epsilon = static_cast<float>(r.attributes.real("epsilon"));
    k_.decay = static_cast<float>(r.attributes.real("weight_decay"));
    const kernels::UpdateRounding rounding(r.attributes);
    stochastic_ = rounding.stochastic;
    k_.seed = rounding.seed;
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue queue) override {
    by_types<float, float, float>(in, stream_of(queue));
    by_types<float, float, bf16>(in, stream_of(queue));
    by_types<bf16, float, float>(in, stream_of(queue));
    by_types<bf16, float, bf16>(in, stream_of(queue));
    by_types<bf16, bf16, float>(in, stream_of(queue));
    by_types<bf16, bf16, bf16>(in, stream_of(queue));
  }

 private:
  template <typename P, typename G, typename M>
  void by_types(std::span<const Buffer> in, cudaStream_t stream) {
    if (stochastic_) {
      by_master<P, G, M, false, true>(in, stream);
      by_master<P, G, M, true, true>(in, stream);
    } else {
      by_master<P, G, M, false, false>(in, stream);
      by_master<P, G, M, true, false>(in, stream);
    }
  }
  /// One launch for the tensors of this kind, or a few if they are more than a list holds.
  template <typename P, typename G, typename M, bool mastered, bool stochastic>
  void by_master(std::span<const Buffer> in, cudaStream_t stream) {
    const auto flush = [&] {
      if (list_.count == 0) return;
      update_tensors<P, G, M, mastered, stochastic>
          <<<list_.chunks, threads, 0, stream>>>(list_, in[0].as<float>(), in[1].as<float>(), k_);
      check_launch("adamw");
      list_.clear();
    };
    list_.clear();
    for (std::size_t i = 2; i + 4 < in.size(); i += 5) {
      const Buffer &p = in[i], &g = in[i + 1], &master = in[i + 2], &m = in[i + 3], &v = in[i + 4];
      const std::int64_t count = p.shape.elements();
      if (p.dtype != type_of<P>() || g.dtype != type_of<G>() || m.dtype != type_of<M>()) continue;
      if (master.absent() == mastered || count == 0) continue;
      if (list_.full()) flush();
      list_.add({p.data, g.data, master.as<float>(), m.data, v.data, count, 0, static_cast<std::uint32_t>(i)}, count, chunk);
    }
    flush();
  }

  bool stochastic_ = false;
  Constants k_{};
  TensorList<AdamwTensor> list_;
};

Made make_adamw(const KernelRequest& r, const KernelSettings& s) {
  if (r.attributes.integer_or("host", 0) != 0) return make_host_update(r, s);
  if (!kernels::has_update_dtypes(r, 2)) return nullptr;
  return std::make_unique<AdamW>(r);
}

}  // namespace

CONSIST_KERNEL(adamw, make_adamw);

}  // namespace consist::cuda
