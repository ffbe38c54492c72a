// The updates of single elements, which devices share: arithmetic in f32, and what instructions say of it.
#pragma once

#include <cstdint>

#include "consist/program.h"

// For the processor and, in files that CUDA compiles, for the GPU.
#ifdef __CUDACC__
#define CONSIST_ON_EVERY_DEVICE __host__ __device__ __forceinline__
#else
#define CONSIST_ON_EVERY_DEVICE inline
#endif

namespace consist::kernels {

/// The rounding of bf16 states, and of bf16 weights without a master, in an update.
struct UpdateRounding {
  bool stochastic;
  std::uint32_t seed;
  explicit UpdateRounding(const Attributes& a)
      : stochastic(a.integer_or("stochastic_rounding", 0) != 0), seed(static_cast<std::uint32_t>(a.integer_or("seed", 0))) {}
};

/// Values of an element that an update changes. `momentum` is 0 where there is no state.
struct UpdatedElement {
  float weight, momentum;
};

struct SgdRule {
  float momentum, decay;
  bool nesterov;
  explicit SgdRule(const Attributes& a)
      : momentum(static_cast<float>(a.real("momentum"))),
        decay(static_cast<float>(a.real("weight_decay"))),
        nesterov(a.integer_or("nesterov", 0) != 0) {}
  CONSIST_ON_EVERY_DEVICE UpdatedElement operator()(UpdatedElement e, float gradient, float rate) const {
    const float g = gradient + decay * e.weight;
    const float m = momentum * e.momentum + g;
    return {e.weight - rate * (nesterov ? g + momentum * m : m), m};
  }
};

struct LionRule {
  float beta1, beta2, decay;
  explicit LionRule(const Attributes& a)
      : beta1(static_cast<float>(a.real("beta1"))),
        beta2(static_cast<float>(a.real("beta2"))),
        decay(static_cast<float>(a.real("weight_decay"))) {}
  CONSIST_ON_EVERY_DEVICE UpdatedElement operator()(UpdatedElement e, float gradient, float rate) const {
    const float c = beta1 * e.momentum + (1.0F - beta1) * gradient;
    const float sign = c > 0 ? 1.0F : c < 0 ? -1.0F : 0.0F;
    return {e.weight - rate * (sign + decay * e.weight), beta2 * e.momentum + (1.0F - beta2) * gradient};
  }
};

struct MuonMomentumRule {
  float momentum;
  bool nesterov;
  explicit MuonMomentumRule(const Attributes& a)
      : momentum(static_cast<float>(a.real("momentum"))), nesterov(a.integer_or("nesterov", 0) != 0) {}
  CONSIST_ON_EVERY_DEVICE float moved(float before, float gradient) const {
    return momentum * before + (1.0F - momentum) * gradient;
  }
  CONSIST_ON_EVERY_DEVICE float direction(float after, float gradient) const {
    return nesterov ? momentum * after + (1.0F - momentum) * gradient : after;
  }
};

struct MuonRule {
  float scale, decay;
  explicit MuonRule(const Attributes& a)
      : scale(static_cast<float>(a.real("scale"))), decay(static_cast<float>(a.real("weight_decay"))) {}
  CONSIST_ON_EVERY_DEVICE float operator()(float weight, float orthogonal, float rate) const {
    return weight * (1.0F - rate * decay) - rate * scale * orthogonal;
  }
};

}  // namespace consist::kernels
