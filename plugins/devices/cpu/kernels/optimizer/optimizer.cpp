// sum_of_squares, clip_coefficient and adamw.
#include <algorithm>
#include <vector>

#include "plugins/devices/common/update_rules.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/optimizer/stochastic.h"

namespace consist::cpu {
namespace {

/// Threads sum ranges of their own in blocks, in double across blocks; the partial sums are added in the order of threads.
class SumOfSquares final : public Kernel {
 public:
  explicit SumOfSquares(const KernelSettings& s) : threads_(s.threads) {}
  std::int64_t workspace_bytes() const override { return threads_ * static_cast<std::int64_t>(sizeof(double)); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    auto* sums = static_cast<double*>(workspace);
    parallel_for(threads_, [=, this](int part) {
      double sum = 0;
      for (const Buffer& t : in) {
        const Part mine = part_of(t.shape.elements(), part, threads_);
        sum += t.dtype == DType::f32 ? squares(t.as<float>(), mine) : squares(t.as<bf16>(), mine);
      }
      sums[part] = sum;
    });
    double total = 0;
    for (int part = 0; part < threads_; ++part) total += sums[part];
    *out[0].as<float>() = static_cast<float>(total);
  }

 private:
  template <typename T>
  static double squares(const T* values, Part part) {
    constexpr std::int64_t block = 512;
    double total = 0;
    for (std::int64_t first = part.first; first < part.last; first += block) {
      const std::int64_t last = std::min(part.last, first + block);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = first; i < last; ++i) sum += load(values[i]) * load(values[i]);
      total += static_cast<double>(sum);
    }
    return total;
  }
  int threads_;
};

class ClipCoefficient final : public Kernel {
 public:
  explicit ClipCoefficient(const KernelRequest& r) : max_norm_(static_cast<float>(r.attributes.real("max_norm"))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float norm = std::sqrt(*in[0].as<float>());
    *out[0].as<float>() = norm;
    *out[1].as<float>() = max_norm_ > 0 ? std::min(1.0F, max_norm_ / (norm + 1e-6F)) : 1.0F;
  }

 private:
  float max_norm_;
};

/// The rate becomes 0 and the coefficient -1 where overflow is not 0.
class HoldUpdate final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const bool held = *in[2].as<float>() != 0;
    std::copy_n(in[0].as<float>(), in[0].shape.elements(), out[0].as<float>());
    if (held) *out[0].as<float>() = 0;
    *out[1].as<float>() = held ? -1.0F : *in[1].as<float>();
  }
};

struct AdamConstants {
  float beta1, beta2, epsilon, decay, rate, correction1, correction2, coefficient;
  std::uint32_t seed;  ///< of stochastic rounding in this step
};

/// One parameter. P: parameter, M: moments; `master` is null unless `mastered` (then p is the weight itself). What branches is
/// known when it is compiled, so that the loop is one of vectors.
template <bool mastered, bool stochastic, typename P, typename G, typename M>
void update_elements(P* p, const G* g, float* master, M* m, M* v, std::int64_t count, const AdamConstants& k) {
  const float root = 1.0F / std::sqrt(k.correction2), step = k.rate / k.correction1, shrink = 1.0F - k.rate * k.decay;
  parallel_for_simd(count, [=](std::int64_t i) {
    const float gradient = load(g[i]) * k.coefficient;
    const float m1 = k.beta1 * load(m[i]) + (1.0F - k.beta1) * gradient;
    const float m2 = k.beta2 * load(v[i]) + (1.0F - k.beta2) * gradient * gradient;
    float weight;
    if constexpr (mastered)
      weight = master[i];
    else
      weight = load(p[i]);
    const float updated = weight * shrink - step * m1 / (std::sqrt(m2) * root + k.epsilon);
    if constexpr (stochastic) {
      const std::uint32_t random = mix(static_cast<std::uint32_t>(i) ^ k.seed);
      store_stochastic(m[i], m1, random);
      store_stochastic(v[i], m2, mix(random + 1));
      if constexpr (!mastered) store_stochastic(p[i], updated, mix(random + 2));
    } else {
      store(m[i], m1);
      store(v[i], m2);
    }
    if constexpr (mastered) master[i] = updated;
    if constexpr (mastered || !stochastic) store(p[i], updated);
  });
}

template <typename P, typename G, typename M>
void update(P* p, const G* g, float* master, M* m, M* v, std::int64_t count, const AdamConstants& k, bool stochastic) {
  if (master != nullptr) {
    if (stochastic)
      update_elements<true, true>(p, g, master, m, v, count, k);
    else
      update_elements<true, false>(p, g, master, m, v, count, k);
  } else if (stochastic) {
    update_elements<false, true>(p, g, master, m, v, count, k);
  } else {
    update_elements<false, false>(p, g, master, m, v, count, k);
  }
}

class AdamW final : public Kernel {
 public:
  explicit AdamW(const KernelRequest& r) : rounding_(r.attributes) {
    k_.beta1 = static_cast<float>(r.attributes.real("beta1"));
    k_.beta2 = static_cast<float>(r.attributes.real("beta2"));
    k_.epsilon = static_cast<float>(r.attributes.real("epsilon"));
    k_.decay = static_cast<float>(r.attributes.real("weight_decay"));
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue) override {
    const float* scalars = in[0].as<float>();
    AdamConstants k = k_;
    k.rate = scalars[0];
    k.correction1 = scalars[1];
    k.correction2 = scalars[2];
    k.coefficient = *in[1].as<float>();
    if (k.coefficient < 0) return;  // held
    for (std::size_t i = 2; i + 4 < in.size(); i += 5) {
      k.seed = seed_of(rounding_.seed, scalars[3], i);
      by_types(in[i], in[i + 1], in[i + 2], in[i + 3], in[i + 4], k);
    }
  }

 private:
  void by_types(const Buffer& p, const Buffer& g, const Buffer& master, const Buffer& m, const Buffer& v,
                const AdamConstants& k) const {
    if (p.dtype == DType::f32)
      typed<float, float>(p, g, master, m, v, k);
    else if (g.dtype == DType::f32)
      typed<bf16, float>(p, g, master, m, v, k);
    else
      typed<bf16, bf16>(p, g, master, m, v, k);
  }
  template <typename P, typename G>
  void typed(const Buffer& p, const Buffer& g, const Buffer& master, const Buffer& m, const Buffer& v,
             const AdamConstants& k) const {
    float* weights = master.absent() ? nullptr : master.as<float>();
    const std::int64_t count = p.shape.elements();
    if (m.dtype == DType::f32)
      update(p.as<P>(), g.as<G>(), weights, m.as<float>(), v.as<float>(), count, k, rounding_.stochastic);
    else
      update(p.as<P>(), g.as<G>(), weights, m.as<bf16>(), v.as<bf16>(), count, k, rounding_.stochastic);
  }

  AdamConstants k_{};
  kernels::UpdateRounding rounding_;
};

Made make_sum_of_squares(const KernelRequest& r, const KernelSettings& s) {
  for (const Buffer& t : r.inputs) {
    if (!is_float(t.dtype)) return nullptr;
  }
  return std::make_unique<SumOfSquares>(s);
}
Made make_clip_coefficient(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<ClipCoefficient>(r);
}
Made make_hold_update(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<HoldUpdate>();
}
Made make_adamw(const KernelRequest& r, const KernelSettings&) {
  if (!kernels::has_update_dtypes(r, 2)) return nullptr;
  return std::make_unique<AdamW>(r);
}

}  // namespace

CONSIST_KERNEL(sum_of_squares, make_sum_of_squares);
CONSIST_KERNEL(clip_coefficient, make_clip_coefficient);
CONSIST_KERNEL(hold_update, make_hold_update);
CONSIST_KERNEL(adamw, make_adamw);

}  // namespace consist::cpu
