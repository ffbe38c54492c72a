// sgd and lion: updates of single elements with one state; all parameters of an instruction that have the same dtypes in one launch.
#include <vector>

#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"
#include "plugins/devices/cuda/kernels/optimizer/stochastic.cuh"
#include "plugins/devices/cuda/kernels/optimizer/tensor_list.cuh"
#include "plugins/devices/common/update_rules.h"

namespace consist::cuda {
namespace {

struct RuleTensor {
  void* p;
  const void* g;
  float* master;  ///< or null: then p is the weight itself
  void* m;        ///< or null: there is no state
  std::int64_t count;
  std::uint32_t first;
  std::uint32_t number;  ///< of the tensor in the instruction: a part of the key of its random bits
};

template <typename Rule, typename P, typename G, typename M>
__global__ void __launch_bounds__(threads)
    update_tensors(const __grid_constant__ TensorList<RuleTensor> list, const float* __restrict__ scalars,
                   const float* __restrict__ clip, Rule rule, kernels::UpdateRounding rounding) {
  if (*clip < 0) return;  // held
  const RuleTensor& t = list.entry[entry_of(list, blockIdx.x)];
  const float rate = scalars[0], coefficient = *clip;
  const auto step = static_cast<std::uint32_t>(scalars[1]);
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x - t.first) * chunk, end = min(t.count, start + chunk);
  P* p = static_cast<P*>(t.p);
  const G* g = static_cast<const G*>(t.g);
  M* m = static_cast<M*>(t.m);
  for (std::int64_t i = start + threadIdx.x; i < end; i += threads) {
    kernels::UpdatedElement e{t.master != nullptr ? t.master[i] : number(p[i]), m != nullptr ? number(m[i]) : 0.0F};
    e = rule(e, number(g[i]) * coefficient, rate);
    if (t.master != nullptr) t.master[i] = e.weight;
    if (rounding.stochastic) {
      const std::uint32_t random = word(random_bits(i / 4, step, t.number, rounding.seed), static_cast<int>(i % 4));
      if constexpr (sizeof(M) == 2) e.momentum = raised_and_cut(e.momentum, random & 0xffffU);
      if constexpr (sizeof(P) == 2) {
        if (t.master == nullptr) e.weight = raised_and_cut(e.weight, random >> 16);
      }
    }
    if (m != nullptr) m[i] = rounded<M>(e.momentum);
    p[i] = rounded<P>(e.weight);
  }
}

/// Inputs: scalars (rate, step), clip, then value, gradient, master? and momentum? of each parameter.
template <typename Rule>
class Update final : public Kernel {
 public:
  Update(const KernelRequest& r, const char* name)
      : name_(name), rule_(r.attributes), rounding_(r.attributes) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue queue) override {
    by_types<float, float, float>(in, stream_of(queue));
    by_types<float, float, bf16>(in, stream_of(queue));
    by_types<bf16, float, float>(in, stream_of(queue));
    by_types<bf16, float, bf16>(in, stream_of(queue));
    by_types<bf16, bf16, float>(in, stream_of(queue));
    by_types<bf16, bf16, bf16>(in, stream_of(queue));
  }

 private:
  /// One launch for the tensors of this kind, or a few if they are more than a list holds.
  template <typename P, typename G, typename M>
  void by_types(std::span<const Buffer> in, cudaStream_t stream) {
    const auto flush = [&] {
      if (list_.count == 0) return;
      update_tensors<Rule, P, G, M><<<list_.chunks, threads, 0, stream>>>(list_, in[0].as<float>(), in[1].as<float>(), rule_,
                                                                           rounding_);
      check_launch(name_);
      list_.clear();
    };
    list_.clear();
    for (std::size_t i = 2; i + 3 < in.size(); i += 4) {
      const Buffer &p = in[i], &g = in[i + 1], &master = in[i + 2], &m = in[i + 3];
      const std::int64_t count = p.shape.elements();
      const DType kept = m.absent() ? DType::f32 : m.dtype;
      if (p.dtype != type_of<P>() || g.dtype != type_of<G>() || kept != type_of<M>() || count == 0) continue;
      if (list_.full()) flush();
      list_.add({p.data, g.data, master.absent() ? nullptr : master.as<float>(), m.absent() ? nullptr : m.data, count, 0,
                 static_cast<std::uint32_t>(i)},
                count, chunk);
    }
    flush();
  }

  const char* name_;
  Rule rule_;
  kernels::UpdateRounding rounding_;
  TensorList<RuleTensor> list_;
};

Made make_sgd(const KernelRequest& r, const KernelSettings& s) {
  if (r.attributes.integer_or("host", 0) != 0) return make_host_update(r, s);
  return kernels::has_update_dtypes(r, 1) ? std::make_unique<Update<kernels::SgdRule>>(r, "sgd") : nullptr;
}
Made make_lion(const KernelRequest& r, const KernelSettings& s) {
  if (r.attributes.integer_or("host", 0) != 0) return make_host_update(r, s);
  return kernels::has_update_dtypes(r, 1) ? std::make_unique<Update<kernels::LionRule>>(r, "lion") : nullptr;
}

}  // namespace

CONSIST_KERNEL(sgd, make_sgd);
CONSIST_KERNEL(lion, make_lion);

}  // namespace consist::cuda
