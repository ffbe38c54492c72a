// Products of 8-bit floats: what a GPU computes, up to the order of fp32 sums.
#include <algorithm>

#include "consist/float8_scaling.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/product.h"

namespace consist::cpu {
namespace {

/// An operand: rows of `columns` codes, and what they are multiplied by.
struct Operand {
  Scaling scaling;
  std::int64_t rows, columns;

  /// The factor of the elements of block `block` of row `row`.
  float descale(const float* descales, std::int64_t row, std::int64_t block) const {
    if (scaling == Scaling::row) return descales[row];
    if (scaling == Scaling::block_1d) return descales[block * rows + row];
    return descales[row / scale_block * square_stride(columns) + block];
  }
};

/// Codes of F as numbers, exact in bf16 and f32: with scales per row or block, which are powers of two, times them; else as they
/// are.
template <typename F, typename To>
void decode(const F* from, const Operand& operand, const float* descales, To* to) {
  if (operand.scaling == Scaling::tensor) {
    parallel_for_simd(operand.rows * operand.columns, [=](std::int64_t i) { store(to[i], load(from[i])); });
    return;
  }
  parallel_for(operand.rows, [=](std::int64_t row) {
    const F* codes = from + row * operand.columns;
    To* numbers = to + row * operand.columns;
    for (std::int64_t first = 0; first < operand.columns; first += scale_block) {
      const std::int64_t last = std::min(first + scale_block, operand.columns);
      const float factor = operand.descale(descales, row, first / scale_block);
#pragma omp simd
      for (std::int64_t i = first; i < last; ++i) store(numbers[i], load(codes[i]) * factor);
    }
  });
}

template <typename To>
void decode(const Buffer& codes, const Operand& operand, const Buffer& descales, void* to) {
  if (codes.dtype == DType::e4m3)
    decode(codes.as<e4m3>(), operand, descales.as<float>(), static_cast<To*>(to));
  else
    decode(codes.as<e5m2>(), operand, descales.as<float>(), static_cast<To*>(to));
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
        scalings_(operand_scalings(r.op, r.attributes)),
        wide_(s.native_bf16 ? DType::bf16 : DType::f32),
        product_(m_, n_, k_, {wide_}, {wide_, true}, DType::f32, false, s) {}

  std::int64_t workspace_bytes() const override { return a_bytes() + b_bytes() + sum_bytes() + product_.workspace_bytes(); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    char* const a = static_cast<char*>(workspace);
    char* const b = a + a_bytes();
    char* const sum = b + b_bytes();
    widen(in[0], {scalings_.a, m_, k_}, in[1], a);
    widen(in[2], {scalings_.b, n_, k_}, in[3], b);
    product_.run(a, b, sum, sum + sum_bytes());
    const float scale = scalings_.a == Scaling::tensor ? *in[1].as<float>() * *in[3].as<float>() : 1.0F;
    if (out[0].dtype == DType::f32)
      finish(reinterpret_cast<const float*>(sum), scale, at(in, 4), out[0].as<float>());
    else
      finish(reinterpret_cast<const float*>(sum), scale, at(in, 4), out[0].as<bf16>());
  }

 private:
  std::int64_t a_bytes() const { return padded(m_ * k_ * static_cast<std::int64_t>(size_of(wide_))); }
  std::int64_t b_bytes() const { return padded(n_ * k_ * static_cast<std::int64_t>(size_of(wide_))); }
  std::int64_t sum_bytes() const { return padded(m_ * n_ * 4); }

  void widen(const Buffer& codes, const Operand& operand, const Buffer& descales, void* numbers) const {
    if (wide_ == DType::bf16)
      decode<bf16>(codes, operand, descales, numbers);
    else
      decode<float>(codes, operand, descales, numbers);
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
  OperandScalings scalings_;
  DType wide_;
  Product product_;
};

Made make_fp8_linear(const KernelRequest& r, const KernelSettings& s) {
  return is_float(r.outputs[0].dtype) ? std::make_unique<Fp8Product>(r, s) : nullptr;
}

}  // namespace

CONSIST_KERNEL(fp8_linear, make_fp8_linear);
CONSIST_KERNEL(fp8_linear_input_grad, make_fp8_linear);
CONSIST_KERNEL(fp8_linear_weight_grad, make_fp8_linear);

}  // namespace consist::cpu
