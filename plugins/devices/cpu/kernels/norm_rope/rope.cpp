// rope and rope_grad: half-split rotation of heads, after an RMSNorm of each head where a norm weight is given. x, y and their
// gradients may be columns of wider tensors, and what is made may take the place of what is rotated.
#include "plugins/devices/common/rope.h"

#include <algorithm>

#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

struct RopeShape {
  std::int64_t tokens, sequence, heads, dim;
  RopeShape(const Buffer& x, std::int64_t head_dim)
      : tokens(x.shape.rows()), sequence(x.shape[1]), heads(x.shape[2] / head_dim), dim(head_dim) {}
};

/// One head. Even where `to` is `from` no two turns touch the same elements.
template <typename T, typename Factor>
void rotate(const T* from, T* to, std::int64_t half, const float* cosine, const float* sine, Factor factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = load(from[i]) * factor(i), b = load(from[half + i]) * factor(half + i);
    store(to[i], a * cosine[i] - b * sine[i]);
    store(to[half + i], b * cosine[i] + a * sine[i]);
  }
}

template <typename T>
class Rope final : public Kernel {
 public:
  explicit Rope(const KernelRequest& r)
      : shape_(r.inputs[0], r.attributes.integer("head_dim")), epsilon_(static_cast<float>(r.attributes.real_or("epsilon", 0))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T* x = in[0].as<T>();                                 // [tokens, heads, dim]
    const float* table = in[1].as<float>();                     // [sequence, dim]: cosines, then sines
    const T* w = at(in, 2).absent() ? nullptr : in[2].as<T>();  // [dim]
    T* y = out[0].as<T>();                                      // [tokens, heads, dim]
    float* rstd = at(out, 1).as<float>();                       // [tokens, heads] or null
    const std::int64_t tokens = shape_.tokens, sequence = shape_.sequence, heads = shape_.heads, dim = shape_.dim;
    const std::int64_t half = dim / 2, x_row = in[0].leading_dimension(), y_row = out[0].leading_dimension();
    parallel_for(tokens, [=, this](std::int64_t token) {
      const float *cosine = table + token % sequence * dim, *sine = cosine + half;
      for (std::int64_t head = 0; head < heads; ++head) {
        const T* from = x + token * x_row + head * dim;
        T* to = y + token * y_row + head * dim;
        float scale = 1.0F;
        if (w != nullptr) {
          float squares = 0;
#pragma omp simd reduction(+ : squares)
          for (std::int64_t i = 0; i < dim; ++i) squares += load(from[i]) * load(from[i]);
          scale = 1.0F / std::sqrt(squares / static_cast<float>(dim) + epsilon_);
          if (rstd != nullptr) rstd[token * heads + head] = scale;
        }
        if (w != nullptr)
          rotate(from, to, half, cosine, sine, [=](std::int64_t i) { return scale * load(w[i]); });
        else
          rotate(from, to, half, cosine, sine, [](std::int64_t) { return 1.0F; });
      }
    });
  }

 private:
  RopeShape shape_;
  float epsilon_;
};

template <typename T, typename G>
class RopeGrad final : public Kernel {
 public:
  RopeGrad(const KernelRequest& r, const KernelSettings& s)
      : shape_(r.inputs[0], r.attributes.integer("head_dim")), normed_(!at(r.inputs, 4).absent()), threads_(s.threads) {}
  /// Per thread: a sum of dw, and the gradient of one head before its norm.
  std::int64_t workspace_bytes() const override { return normed_ ? threads_ * 2 * shape_.dim * 4 : 0; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const auto [dy, table, dx, x, rstd, w, dw, add_dw] = kernels::RopeGradTensors<T, G>(in, out);
    const std::int64_t tokens = shape_.tokens, sequence = shape_.sequence, heads = shape_.heads, dim = shape_.dim;
    const std::int64_t half = dim / 2, dy_row = in[0].leading_dimension(), x_row = at(in, 2).leading_dimension(),
                       dx_row = out[0].leading_dimension();
    if (!normed_) {
      parallel_for(tokens, [=](std::int64_t token) {
        const float *cosine = table + token % sequence * dim, *sine = cosine + half;
        for (std::int64_t head = 0; head < heads; ++head) {
          const T* from = dy + token * dy_row + head * dim;
          T* to = dx + token * dx_row + head * dim;
#pragma omp simd
          for (std::int64_t i = 0; i < half; ++i) {
            const float a = load(from[i]), b = load(from[half + i]);
            store(to[i], a * cosine[i] + b * sine[i]);
            store(to[half + i], b * cosine[i] - a * sine[i]);
          }
        }
      });
      return;
    }
    auto* scratch = static_cast<float*>(workspace);  // [threads, 2, dim]
    parallel_for(threads_, [=, this](int part) {
      float *sum = scratch + part * 2 * dim, *g = sum + dim;
      std::fill(sum, sum + dim, 0.0F);
      const Part mine = part_of(tokens, part, threads_);
      for (std::int64_t token = mine.first; token < mine.last; ++token) {
        const float *cosine = table + token % sequence * dim, *sine = cosine + half;
        for (std::int64_t head = 0; head < heads; ++head) {
          const T *from = dy + token * dy_row + head * dim, *before = x + token * x_row + head * dim;
          T* to = dx + token * dx_row + head * dim;
          const float scale = rstd[token * heads + head];
          for (std::int64_t i = 0; i < half; ++i) {
            const float a = load(from[i]), b = load(from[half + i]);
            g[i] = a * cosine[i] + b * sine[i];
            g[half + i] = b * cosine[i] - a * sine[i];
          }
          float dot = 0;
#pragma omp simd reduction(+ : dot)
          for (std::int64_t i = 0; i < dim; ++i) {
            const float xi = load(before[i]);
            sum[i] += g[i] * xi * scale;
            dot += g[i] * load(w[i]) * xi;
          }
          const float pull = dot / static_cast<float>(dim) * scale * scale;
          for (std::int64_t i = 0; i < dim; ++i) store(to[i], scale * (g[i] * load(w[i]) - load(before[i]) * pull));
        }
      }
    });
    if (dw == nullptr) return;
    for (std::int64_t i = 0; i < dim; ++i) {
      float total = add_dw ? load(dw[i]) : 0.0F;
      for (int part = 0; part < threads_; ++part) total += scratch[part * 2 * dim + i];
      store(dw[i], total);
    }
  }

 private:
  RopeShape shape_;
  bool normed_;
  int threads_;
};

Made make_rope(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Rope>(r.inputs[0].dtype, r);
}
Made make_rope_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<RopeGrad>(r.inputs[0].dtype, kernels::dtype_or_f32(r.outputs, 1), r, s);
}

}  // namespace

CONSIST_KERNEL(rope, make_rope);
CONSIST_KERNEL(rope_grad, make_rope_grad);

}  // namespace consist::cpu
