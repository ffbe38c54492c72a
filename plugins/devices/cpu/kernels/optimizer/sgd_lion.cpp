// sgd and lion: updates of single elements with one state, of all parameters of an instruction.
#include "plugins/devices/common/update_rules.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/optimizer/stochastic.h"

namespace consist::cpu {
namespace {

/// One parameter; `master` and `m` are null unless `mastered` and `kept`.
template <bool mastered, bool kept, typename Rule, typename P, typename G, typename M>
void update(const Rule& rule, P* p, const G* g, float* master, M* m, std::int64_t count, float rate, float clip, bool stochastic,
            std::uint32_t seed) {
  parallel_for_simd(count, [=](std::int64_t i) {
    kernels::UpdatedElement e{0, 0};
    if constexpr (mastered)
      e.weight = master[i];
    else
      e.weight = load(p[i]);
    if constexpr (kept) e.momentum = load(m[i]);
    e = rule(e, load(g[i]) * clip, rate);
    if constexpr (mastered) master[i] = e.weight;
    if (stochastic) {
      const std::uint32_t random = mix(static_cast<std::uint32_t>(i) ^ seed);
      if constexpr (kept) store_stochastic(m[i], e.momentum, random);
      if constexpr (mastered)
        store(p[i], e.weight);
      else
        store_stochastic(p[i], e.weight, mix(random + 2));
    } else {
      if constexpr (kept) store(m[i], e.momentum);
      store(p[i], e.weight);
    }
  });
}

/// Inputs: scalars (rate, step), clip, then value, gradient, master? and momentum? of each parameter.
template <typename Rule>
class Update final : public Kernel {
 public:
  explicit Update(const KernelRequest& r) : rule_(r.attributes), rounding_(r.attributes) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue) override {
    if (*in[1].as<float>() < 0) return;  // held
    for (std::size_t i = 2; i + 3 < in.size(); i += 4) {
      if (in[i].dtype == DType::f32)
        typed<float, float>(in, i);
      else if (in[i + 1].dtype == DType::f32)
        typed<bf16, float>(in, i);
      else
        typed<bf16, bf16>(in, i);
    }
  }

 private:
  template <typename P, typename G>
  void typed(std::span<const Buffer> in, std::size_t i) const {
    if (in[i + 3].absent() || in[i + 3].dtype == DType::f32)
      by_master<P, G, float>(in, i);
    else
      by_master<P, G, bf16>(in, i);
  }
  template <typename P, typename G, typename M>
  void by_master(std::span<const Buffer> in, std::size_t i) const {
    const bool mastered = !in[i + 2].absent(), kept = !in[i + 3].absent();
    if (mastered && kept) run<true, true, P, G, M>(in, i);
    if (mastered && !kept) run<true, false, P, G, M>(in, i);
    if (!mastered && kept) run<false, true, P, G, M>(in, i);
    if (!mastered && !kept) run<false, false, P, G, M>(in, i);
  }
  template <bool mastered, bool kept, typename P, typename G, typename M>
  void run(std::span<const Buffer> in, std::size_t i) const {
    const float* scalars = in[0].as<float>();
    update<mastered, kept>(rule_, in[i].as<P>(), in[i + 1].as<G>(), mastered ? in[i + 2].as<float>() : nullptr,
                           kept ? in[i + 3].as<M>() : nullptr, in[i].shape.elements(), scalars[0], *in[1].as<float>(), rounding_.stochastic,
                           seed_of(rounding_.seed, scalars[1], i));
  }

  Rule rule_;
  kernels::UpdateRounding rounding_;
};

Made make_sgd(const KernelRequest& r, const KernelSettings&) {
  return kernels::has_update_dtypes(r, 1) ? std::make_unique<Update<kernels::SgdRule>>(r) : nullptr;
}
Made make_lion(const KernelRequest& r, const KernelSettings&) {
  return kernels::has_update_dtypes(r, 1) ? std::make_unique<Update<kernels::LionRule>>(r) : nullptr;
}

}  // namespace

CONSIST_KERNEL(sgd, make_sgd);
CONSIST_KERNEL(lion, make_lion);

}  // namespace consist::cpu
