// muon_momentum, orthogonalize and muon.
#include <algorithm>
#include <cmath>

#include "plugins/devices/common/newton_schulz.h"
#include "plugins/devices/common/update_rules.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/product.h"
#include "plugins/devices/cpu/kernels/optimizer/stochastic.h"

namespace consist::cpu {
namespace {

template <typename G, typename M>
class MuonMomentum final : public Kernel {
 public:
  explicit MuonMomentum(const KernelRequest& r) : rule_(r.attributes) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float clip = *in[0].as<float>();
    const G* g = in[1].as<G>();
    M* m = in[2].as<M>();
    auto* direction = out[1].as<float>();
    if (clip < 0) {  // held
      std::fill_n(direction, in[1].shape.elements(), 0.0F);
      return;
    }
    const kernels::MuonMomentumRule rule = rule_;
    parallel_for_simd(in[1].shape.elements(), [=](std::int64_t i) {
      const float gradient = load(g[i]) * clip;
      const float moved = rule.moved(load(m[i]), gradient);
      store(m[i], moved);
      direction[i] = rule.direction(moved, gradient);
    });
  }

 private:
  kernels::MuonMomentumRule rule_;
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
        threads_(s.threads),
        less_(std::min(rows_, columns_)),
        gram_(less_, less_, std::max(rows_, columns_), {type(), is_tall()}, {type(), !is_tall()}, type(), false, s),
        square_(less_, less_, less_, {type()}, {type()}, type(), false, s),
        apply_(rows_, columns_, less_, {type()}, {type()}, type(), false, s) {}

  std::int64_t workspace_bytes() const override {
    return 3 * bytes(less_ * less_) + 2 * bytes(rows_ * columns_) + padded(threads_ * 8) +
           std::max({gram_.workspace_bytes(), square_.workspace_bytes(), apply_.workspace_bytes()});
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    char* free = static_cast<char*>(workspace);
    const auto take = [&](std::int64_t elements) {
      auto* taken = reinterpret_cast<T*>(free);
      free += bytes(elements);
      return taken;
    };
    T *const gram = take(less_ * less_), *const square = take(less_ * less_), *const polynomial = take(less_ * less_);
    T *const x = take(rows_ * columns_), *const product = take(rows_ * columns_);
    auto* const sums = reinterpret_cast<double*>(free);
    free += padded(threads_ * 8);
    auto* const y = out[0].as<float>();
    const std::int64_t count = rows_ * columns_;
    scale(in[0].as<float>(), x, count, sums);
    for (std::int64_t i = 0; i < iterations_; ++i) {
      gram_.run(x, x, gram, free);  // x xᵀ, or xᵀ x of a tall one
      square_.run(gram, gram, square, free);
      parallel_for_simd(less_ * less_, [=](std::int64_t e) {
        store(polynomial[e], kernels::newton_schulz_b * load(gram[e]) + kernels::newton_schulz_c * load(square[e]));
      });
      if (is_tall())
        apply_.run(x, polynomial, product, free);
      else
        apply_.run(polynomial, x, product, free);
      if (i + 1 < iterations_)
        parallel_for_simd(count, [=](std::int64_t e) { store(x[e], kernels::newton_schulz_a * load(x[e]) + load(product[e])); });
      else
        parallel_for_simd(count, [=](std::int64_t e) { y[e] = kernels::newton_schulz_a * load(x[e]) + load(product[e]); });
    }
  }

 private:
  static constexpr DType type() { return dtype_of_type<T>(); }
  bool is_tall() const { return rows_ > columns_; }
  static std::int64_t bytes(std::int64_t elements) { return padded(elements * static_cast<std::int64_t>(sizeof(T))); }

  /// x over its Frobenius norm. Threads sum parts of their own, which are added in their order.
  void scale(const float* from, T* to, std::int64_t count, double* sums) const {
    const int threads = threads_;
    parallel_for(threads, [=](int part) {
      const Part mine = part_of(count, part, threads);
      double sum = 0;
      for (std::int64_t i = mine.first; i < mine.last; ++i) sum += static_cast<double>(from[i]) * from[i];
      sums[part] = sum;
    });
    double squares = 0;
    for (int part = 0; part < threads; ++part) squares += sums[part];
    const float over = 1.0F / std::max(static_cast<float>(std::sqrt(squares)), kernels::newton_schulz_least_norm);
    parallel_for_simd(count, [=](std::int64_t i) { store(to[i], from[i] * over); });
  }

  std::int64_t rows_, columns_, iterations_;
  int threads_;
  std::int64_t less_;
  Product gram_, square_, apply_;
};

template <typename P>
class Muon final : public Kernel {
 public:
  explicit Muon(const KernelRequest& r) : rule_(r.attributes), rounding_(r.attributes) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue) override {
    const float* scalars = in[0].as<float>();
    P* p = in[1].as<P>();
    const auto* o = in[2].as<float>();
    float* master = at(in, 3).absent() ? nullptr : in[3].as<float>();
    const float rate = scalars[0];
    const kernels::MuonRule rule = rule_;
    const bool stochastic = rounding_.stochastic && master == nullptr;
    const std::uint32_t seed = seed_of(rounding_.seed, scalars[in[0].shape.elements() - 1], 0);
    parallel_for_simd(in[1].shape.elements(), [=](std::int64_t i) {
      const float updated = rule(master != nullptr ? master[i] : load(p[i]), o[i], rate);
      if (master != nullptr) master[i] = updated;
      if (stochastic)
        store_stochastic(p[i], updated, mix(static_cast<std::uint32_t>(i) ^ seed));
      else
        store(p[i], updated);
    });
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

}  // namespace consist::cpu
