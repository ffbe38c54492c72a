// amax, quantize and products of 8-bit floats, value for value what a GPU computes: quantized tensors and scales to the bit,
// products up to the order of fp32 sums.
#include <algorithm>
#include <string>

#include "consist/error.h"
#include "plugins/devices/cpu/kernels/parallel.h"
#include "plugins/devices/cpu/kernels/product.h"

namespace consist::cpu {
namespace {

/// The largest magnitude, compared as bits of a float without its sign: infinity is above all numbers and NaN above that.
template <typename T>
class Amax final : public Kernel {
 public:
  explicit Amax(const KernelSettings& s) : threads_(s.threads) {}
  std::int64_t workspace_bytes() const override { return threads_ * std::int64_t{64}; }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const T* x = in[0].as<T>();
    const std::int64_t count = in[0].shape.elements();
    auto* const found = static_cast<std::uint32_t*>(workspace);  // a cache line for each thread
    parallel_for(threads_, [=, this](int part) {
      const Part mine = part_of(count, part, threads_);
      std::uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
      for (std::int64_t i = mine.first; i < mine.last; ++i)
        largest = std::max(largest, std::bit_cast<std::uint32_t>(load(x[i])) & 0x7fffffffU);
      found[part * 16] = largest;
    });
    std::uint32_t largest = 0;
    for (int part = 0; part < threads_; ++part) largest = std::max(largest, found[part * 16]);
    *out[0].as<float>() = std::bit_cast<float>(largest);
  }

 private:
  int threads_;
};

/// Inputs x [rows, columns], amax. Outputs q [rows, columns], its transpose, and 1 / scale.
template <typename T, typename F>
class Quantize final : public Kernel {
 public:
  explicit Quantize(const KernelRequest& r) : tensor_(r.attributes.string("tensor")), type_(r.outputs[0].dtype) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float amax = *in[1].as<float>();
    if (!std::isfinite(amax)) {
      throw Error("tensor '" + tensor_ + "' holds " + (std::isnan(amax) ? "NaN" : "an infinity") + ", which " +
                  std::string(name_of(type_)) + " cannot represent: training has diverged, or its input has");
    }
    const float scale = float8_scale(amax, type_);
    *out[2].as<float>() = 1.0F / scale;
    const T* x = in[0].as<T>();
    F* q = out[0].as<F>();
    F* qt = at(out, 1).as<F>();
    const std::int64_t rows = in[0].shape.rows(), columns = in[0].shape.last();
    constexpr std::int64_t band = 32;  // rows at a time, so that the transposed ones are written in runs
    parallel_for((rows + band - 1) / band, [=](std::int64_t index) {
      const std::int64_t first = index * band, last = std::min(first + band, rows);
      for (std::int64_t row = first; row < last; ++row) {
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i) store(q[row * columns + i], load(x[row * columns + i]) * scale);
      }
      if (qt == nullptr) return;
      for (std::int64_t i = 0; i < columns; ++i) {
        for (std::int64_t row = first; row < last; ++row) qt[i * rows + row] = q[row * columns + i];
      }
    });
  }

 private:
  std::string tensor_;
  DType type_;
};

/// Codes as the numbers that they mean, exact in bf16 and f32.
template <typename To>
void decode(const void* codes, DType type, void* numbers, std::int64_t count) {
  auto* to = static_cast<To*>(numbers);
  if (type == DType::e4m3) {
    const auto* from = static_cast<const e4m3*>(codes);
    parallel_for_simd(count, [=](std::int64_t i) { store(to[i], load(from[i])); });
  } else {
    const auto* from = static_cast<const e5m2*>(codes);
    parallel_for_simd(count, [=](std::int64_t i) { store(to[i], load(from[i])); });
  }
}

/// y [m, n] (+)= descales · a [m, k] b [n, k]ᵀ + bias [n], summed in fp32 and rounded once. Inputs a, descale, b, descale, then
/// the bias (of a linear) or the accumulator (of a gradient).
class Fp8Product final : public Kernel {
 public:
  Fp8Product(const KernelRequest& r, const KernelSettings& s)
      : is_linear_(r.op == "fp8_linear"),
        m_(r.op == "fp8_linear_weight_grad" ? r.inputs[0].shape[0] : r.inputs[0].shape.rows()),
        k_(r.inputs[0].shape.elements() / std::max<std::int64_t>(m_, 1)),
        n_(r.inputs[2].shape[0]),
        wide_(s.native_bf16 ? DType::bf16 : DType::f32),
        product_(m_, n_, k_, {wide_}, {wide_, true}, DType::f32, false, s) {}

  std::int64_t workspace_bytes() const override { return a_bytes() + b_bytes() + sum_bytes() + product_.workspace_bytes(); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    char* const a = static_cast<char*>(workspace);
    char* const b = a + a_bytes();
    char* const sum = b + b_bytes();
    widen(in[0], a);
    widen(in[2], b);
    product_.run(a, b, sum, sum + sum_bytes());
    const float scale = *in[1].as<float>() * *in[3].as<float>();
    if (out[0].dtype == DType::f32)
      finish(reinterpret_cast<const float*>(sum), scale, at(in, 4), out[0].as<float>());
    else
      finish(reinterpret_cast<const float*>(sum), scale, at(in, 4), out[0].as<bf16>());
  }

 private:
  static std::int64_t padded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }
  std::int64_t a_bytes() const { return padded(m_ * k_ * static_cast<std::int64_t>(size_of(wide_))); }
  std::int64_t b_bytes() const { return padded(n_ * k_ * static_cast<std::int64_t>(size_of(wide_))); }
  std::int64_t sum_bytes() const { return padded(m_ * n_ * 4); }

  void widen(const Buffer& codes, void* numbers) const {
    if (wide_ == DType::bf16)
      decode<bf16>(codes.data, codes.dtype, numbers, codes.shape.elements());
    else
      decode<float>(codes.data, codes.dtype, numbers, codes.shape.elements());
  }

  template <typename T>
  void finish(const float* sum, float scale, const Buffer& extra, T* y) const {
    const std::int64_t n = n_;
    if (extra.absent()) {
      parallel_for_simd(m_ * n, [=](std::int64_t i) { store(y[i], scale * sum[i]); });
    } else if (is_linear_) {
      const T* bias = extra.as<T>();
      parallel_for(m_, [=](std::int64_t row) {
        for (std::int64_t i = 0; i < n; ++i) store(y[row * n + i], scale * sum[row * n + i] + load(bias[i]));
      });
    } else {
      parallel_for_simd(m_ * n, [=](std::int64_t i) { store(y[i], load(y[i]) + scale * sum[i]); });
    }
  }

  bool is_linear_;
  std::int64_t m_, k_, n_;
  DType wide_;
  Product product_;
};

template <typename T>
Made quantize_to(const KernelRequest& r) {
  if (r.outputs[0].dtype == DType::e4m3) return std::make_unique<Quantize<T, e4m3>>(r);
  if (r.outputs[0].dtype == DType::e5m2) return std::make_unique<Quantize<T, e5m2>>(r);
  return nullptr;
}

}  // namespace

Made make_amax(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<Amax>(r.inputs[0].dtype, s);
}
Made make_quantize(const KernelRequest& r, const KernelSettings&) {
  if (r.inputs[0].dtype == DType::f32) return quantize_to<float>(r);
  if (r.inputs[0].dtype == DType::bf16) return quantize_to<bf16>(r);
  return nullptr;
}
Made make_fp8_linear(const KernelRequest& r, const KernelSettings& s) {
  return is_float(r.outputs[0].dtype) ? std::make_unique<Fp8Product>(r, s) : nullptr;
}
Made make_fp8_linear_input_grad(const KernelRequest& r, const KernelSettings& s) {
  return make_fp8_linear(r, s);
}
Made make_fp8_linear_weight_grad(const KernelRequest& r, const KernelSettings& s) {
  return make_fp8_linear(r, s);
}

}  // namespace consist::cpu
