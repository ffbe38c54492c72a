// rms_norm and rms_norm_grad.
#include "plugins/devices/common/rms_norm.h"

#include <algorithm>

#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

template <typename T>
class RmsNorm final : public Kernel {
 public:
  explicit RmsNorm(const KernelRequest& r) : epsilon_(static_cast<float>(r.attributes.real("epsilon"))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto [x, residual, w, y, sum, rstd, rows, c] = kernels::RmsNormTensors<T>(in, out);
    parallel_for(rows, [=, this](std::int64_t row) {
      const T* xr = x + row * c;
      if (residual != nullptr) {
        for (std::int64_t i = 0; i < c; ++i) store(sum[row * c + i], load(xr[i]) + load(residual[row * c + i]));
        xr = sum + row * c;
      }
      float squares = 0;
#pragma omp simd reduction(+ : squares)
      for (std::int64_t i = 0; i < c; ++i) squares += load(xr[i]) * load(xr[i]);
      const float scale = 1.0F / std::sqrt(squares / static_cast<float>(c) + epsilon_);
      rstd[row] = scale;
      for (std::int64_t i = 0; i < c; ++i) store(y[row * c + i], load(xr[i]) * scale * load(w[i]));
    });
  }

 private:
  float epsilon_;
};

template <typename T, typename G>
class RmsNormGrad final : public Kernel {
 public:
  RmsNormGrad(const KernelRequest& r, const KernelSettings& s) : c_(r.inputs[1].shape.last()), threads_(s.threads) {}
  /// A sum of dw for each thread, added in the order of threads.
  std::int64_t workspace_bytes() const override { return threads_ * c_ * 4; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const auto [dy, x, rstd, w, added, add_dw, dx, dw, rows, c] = kernels::RmsNormGradTensors<T, G>(in, out);
    auto* sums = static_cast<float*>(workspace);  // [threads, c]
    parallel_for(threads_, [=, this](int part) {
      float* sum = sums + part * c;
      std::fill(sum, sum + c, 0.0F);
      const Part mine = part_of(rows, part, threads_);
      for (std::int64_t row = mine.first; row < mine.last; ++row) {
        const T *dyr = dy + row * c, *xr = x + row * c;
        const T* ar = added == nullptr ? nullptr : added + row * c;
        T* dxr = dx + row * c;
        const float scale = rstd[row];
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (std::int64_t i = 0; i < c; ++i) dot += load(dyr[i]) * load(w[i]) * load(xr[i]);
        const float pull = dot / static_cast<float>(c) * scale * scale;
        for (std::int64_t i = 0; i < c; ++i) {
          const float g = load(dyr[i]);
          sum[i] += g * load(xr[i]) * scale;
          const float d = scale * (g * load(w[i]) - load(xr[i]) * pull);
          store(dxr[i], ar != nullptr ? load(ar[i]) + d : d);
        }
      }
    });
    if (dw == nullptr) return;
    for (std::int64_t i = 0; i < c; ++i) {
      float total = add_dw ? load(dw[i]) : 0.0F;
      for (int part = 0; part < threads_; ++part) total += sums[part * c + i];
      store(dw[i], total);
    }
  }

 private:
  std::int64_t c_;
  int threads_;
};

Made make_rms_norm(const KernelRequest& r, const KernelSettings&) { return by_dtype<RmsNorm>(r.inputs[0].dtype, r); }
Made make_rms_norm_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<RmsNormGrad>(r.inputs[1].dtype, kernels::dtype_or_f32(r.outputs, 1), r, s);
}

}  // namespace

CONSIST_KERNEL(rms_norm, make_rms_norm);
CONSIST_KERNEL(rms_norm_grad, make_rms_norm_grad);

}  // namespace consist::cpu
