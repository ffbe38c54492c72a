// amax and quantize of 8-bit floats, value for value what a GPU computes: quantized tensors and scales are equal to the bit.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "consist/error.h"
#include "consist/float8_scaling.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

/// Magnitudes are compared as bits of a float without its sign: infinity is above all numbers and NaN above that.
template <typename T>
std::uint32_t magnitude(T value) {
  return std::bit_cast<std::uint32_t>(load(value)) & 0x7fffffffU;
}

template <typename T>
std::uint32_t largest_of(const T* x, std::int64_t count) {
  std::uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude(x[i]));
  return largest;
}

/// The largest magnitude of a whole tensor; its scratch has a cache line for each thread.
class Largest {
 public:
  explicit Largest(int threads) : threads_(threads) {}
  std::int64_t workspace_bytes() const { return threads_ * std::int64_t{64}; }
  template <typename T>
  float of(const T* x, std::int64_t count, void* workspace) const {
    auto* const found = static_cast<std::uint32_t*>(workspace);
    const int threads = threads_;
    parallel_for(threads, [=](int part) {
      const Part mine = part_of(count, part, threads);
      found[part * 16] = largest_of(x + mine.first, mine.last - mine.first);
    });
    std::uint32_t largest = 0;
    for (int part = 0; part < threads; ++part) largest = std::max(largest, found[part * 16]);
    return std::bit_cast<float>(largest);
  }

 private:
  int threads_;
};

template <typename T>
class Amax final : public Kernel {
 public:
  explicit Amax(const KernelSettings& s) : largest_(s.threads) {}
  std::int64_t workspace_bytes() const override { return largest_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    *out[0].as<float>() = largest_.of(in[0].as<T>(), in[0].shape.elements(), workspace);
  }

 private:
  Largest largest_;
};

/// Base of what quantizes the tensor that attribute `tensor` names.
template <typename T, typename F>
class QuantizeBase : public Kernel {
 public:
  explicit QuantizeBase(const KernelRequest& r) : type_(r.outputs[0].dtype), tensor_(r.attributes.string("tensor")) {}

 protected:
  void require_finite(float amax) const {
    if (std::isfinite(amax)) return;
    throw Error("tensor '" + tensor_ + "' holds " + (std::isnan(amax) ? "NaN" : "an infinity") + ", which " +
                std::string(name_of(type_)) + " cannot represent: training has diverged, or its input has");
  }
  DType type_;

 private:
  std::string tensor_;
};

/// One scale. Inputs x [rows, columns], amax. Outputs q [rows, columns], its transpose, and 1 / scale.
template <typename T, typename F>
class Quantize : public QuantizeBase<T, F> {
 public:
  using QuantizeBase<T, F>::QuantizeBase;
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float amax = *in[1].as<float>();
    this->require_finite(amax);
    quantize(in[0], amax, out);
  }

 protected:
  void quantize(const Buffer& in, float amax, std::span<const Buffer> out) const {
    const float scale = float8_scale(amax, this->type_);
    *out[2].as<float>() = 1.0F / scale;
    const T* x = in.as<T>();
    F* q = out[0].as<F>();
    F* qt = at(out, 1).as<F>();
    const std::int64_t rows = in.shape.rows(), columns = in.shape.last();
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
};

/// The same with the scale of the largest magnitude of the steps before, or the tensor's own where there was none. Input 1 is the
/// history, output 3 the tensor's own largest magnitude.
template <typename T, typename F>
class QuantizeDelayed final : public Quantize<T, F> {
 public:
  QuantizeDelayed(const KernelRequest& r, const KernelSettings& s) : Quantize<T, F>(r), largest_(s.threads) {}
  std::int64_t workspace_bytes() const override { return largest_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    const float own = largest_.of(in[0].as<T>(), in[0].shape.elements(), workspace);
    this->require_finite(own);
    *out[3].as<float>() = own;
    const float known = *in[1].as<float>();
    this->quantize(in[0], known > 0 ? known : own, out);
  }

 private:
  Largest largest_;
};

/// A rank's part of a tensor, with the scale of the whole. Inputs x, amaxes [ranks, tensors]; outputs q, 1 / scale.
template <typename T, typename F>
class QuantizePart final : public QuantizeBase<T, F> {
 public:
  explicit QuantizePart(const KernelRequest& r) : QuantizeBase<T, F>(r), column_(r.attributes.integer("column")) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const float* amaxes = in[1].as<float>();
    std::uint32_t amax = 0;
    for (std::int64_t row = 0; row < in[1].shape[0]; ++row)
      amax = std::max(amax, magnitude(amaxes[row * in[1].shape[1] + column_]));
    this->require_finite(std::bit_cast<float>(amax));
    const float scale = float8_scale(std::bit_cast<float>(amax), this->type_);
    *out[1].as<float>() = 1.0F / scale;
    const T* x = in[0].as<T>();
    F* q = out[0].as<F>();
    parallel_for_simd(in[0].shape.elements(), [=](std::int64_t i) { store(q[i], load(x[i]) * scale); });
  }

 private:
  std::int64_t column_;
};

/// Scales of stretches of rows and, for the transposed copy, of columns: of 128 elements, or whole ones. Outputs q [rows,
/// columns], its transpose, descales [blocks of a row, rows] and [blocks of a column, columns].
template <typename T, typename F>
class QuantizeRows final : public QuantizeBase<T, F> {
 public:
  QuantizeRows(const KernelRequest& r, Scaling scaling)
      : QuantizeBase<T, F>(r),
        rows_(r.inputs[0].shape.rows()),
        columns_(r.inputs[0].shape.last()),
        along_row_(scaling == Scaling::row ? columns_ : scale_block),
        along_column_(scaling == Scaling::row ? rows_ : scale_block) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T* x = in[0].as<T>();
    largest_ = 0;
    scale_rows(x, out[0].as<F>(), out[2].as<float>());
    scale_columns(x, out[1].as<F>(), out[3].as<float>());
    this->require_finite(std::bit_cast<float>(largest_.load()));
  }

 private:
  void raise(std::uint32_t amax) {
    std::uint32_t known = largest_.load(std::memory_order_relaxed);
    while (amax > known && !largest_.compare_exchange_weak(known, amax, std::memory_order_relaxed)) {
    }
  }

  void scale_rows(const T* x, F* q, float* descales) {
    parallel_for(rows_, [=, this](std::int64_t row) {
      for (std::int64_t first = 0; first < columns_; first += along_row_) {
        const std::int64_t at = row * columns_ + first, count = std::min(along_row_, columns_ - first);
        const std::uint32_t amax = largest_of(x + at, count);
        const float scale = float8_scale(std::bit_cast<float>(amax), this->type_);
        raise(amax);
        descales[first / along_row_ * rows_ + row] = 1.0F / scale;
#pragma omp simd
        for (std::int64_t i = at; i < at + count; ++i) store(q[i], load(x[i]) * scale);
      }
    });
  }

  void scale_columns(const T* x, F* qt, float* descales) {
    constexpr std::int64_t strip = 64;  // columns at a time, so that rows are read in runs
    parallel_for((columns_ + strip - 1) / strip, [=, this](std::int64_t index) {
      const std::int64_t column = index * strip, count = std::min(strip, columns_ - column);
      for (std::int64_t first = 0; first < rows_; first += along_column_) {
        const std::int64_t last = std::min(first + along_column_, rows_);
        std::uint32_t amax[strip] = {};
        float scale[strip];
        for (std::int64_t row = first; row < last; ++row) {
          for (std::int64_t i = 0; i < count; ++i) amax[i] = std::max(amax[i], magnitude(x[row * columns_ + column + i]));
        }
        for (std::int64_t i = 0; i < count; ++i) {
          scale[i] = float8_scale(std::bit_cast<float>(amax[i]), this->type_);
          raise(amax[i]);
          descales[first / along_column_ * columns_ + column + i] = 1.0F / scale[i];
        }
        for (std::int64_t i = 0; i < count; ++i) {
          for (std::int64_t row = first; row < last; ++row)
            store(qt[(column + i) * rows_ + row], load(x[row * columns_ + column + i]) * scale[i]);
        }
      }
    });
  }

  std::int64_t rows_, columns_, along_row_, along_column_;
  std::atomic<std::uint32_t> largest_ = 0;  // of the launch
};

/// Scales of squares of 128 x 128, the same for both copies. Descales [blocks of rows, stride of columns] and the other way
/// round; what pads a stride is 0.
template <typename T, typename F>
class QuantizeSquares final : public QuantizeBase<T, F> {
 public:
  explicit QuantizeSquares(const KernelRequest& r)
      : QuantizeBase<T, F>(r), rows_(r.inputs[0].shape.rows()), columns_(r.inputs[0].shape.last()) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T* x = in[0].as<T>();
    F *q = out[0].as<F>(), *qt = out[1].as<F>();
    float *descales = out[2].as<float>(), *turned = out[3].as<float>();
    const std::int64_t down = scale_blocks(rows_), across = scale_blocks(columns_);
    const std::int64_t stride = square_stride(columns_), stride_t = square_stride(rows_);
    std::fill_n(descales, down * stride, 0.0F);
    std::fill_n(turned, across * stride_t, 0.0F);
    parallel_for(down * across, [=, this](std::int64_t index) {
      const std::int64_t row0 = index / across * scale_block, column0 = index % across * scale_block;
      const std::int64_t row1 = std::min(row0 + scale_block, rows_), count = std::min(scale_block, columns_ - column0);
      std::uint32_t amax = 0;
      for (std::int64_t row = row0; row < row1; ++row) amax = std::max(amax, largest_of(x + row * columns_ + column0, count));
      const float scale = float8_scale(std::bit_cast<float>(amax), this->type_);
      descales[index / across * stride + index % across] = turned[index % across * stride_t + index / across] = 1.0F / scale;
      for (std::int64_t row = row0; row < row1; ++row) {
#pragma omp simd
        for (std::int64_t i = row * columns_ + column0; i < row * columns_ + column0 + count; ++i)
          store(q[i], load(x[i]) * scale);
      }
      for (std::int64_t i = column0; i < column0 + count; ++i) {
        for (std::int64_t row = row0; row < row1; ++row) qt[i * rows_ + row] = q[row * columns_ + i];
      }
    });
    if (std::any_of(descales, descales + down * stride, [](float descale) { return std::isnan(descale); }))
      this->require_finite(std::bit_cast<float>(largest_of(x, rows_ * columns_)));
  }

 private:
  std::int64_t rows_, columns_;
};

template <typename T, typename F>
Made quantize_as(const KernelRequest& r, const KernelSettings& s) {
  switch (const Scaling scaling = scaling_of(r.attributes)) {
    case Scaling::tensor:
      return std::make_unique<Quantize<T, F>>(r);
    case Scaling::delayed:
      return std::make_unique<QuantizeDelayed<T, F>>(r, s);
    case Scaling::block_2d:
      return std::make_unique<QuantizeSquares<T, F>>(r);
    default:
      return std::make_unique<QuantizeRows<T, F>>(r, scaling);
  }
}

template <typename T>
Made quantize_to(const KernelRequest& r, const KernelSettings& s) {
  if (r.outputs[0].dtype == DType::e4m3) return quantize_as<T, e4m3>(r, s);
  if (r.outputs[0].dtype == DType::e5m2) return quantize_as<T, e5m2>(r, s);
  return nullptr;
}

template <typename T>
Made quantize_part_to(const KernelRequest& r) {
  if (r.outputs[0].dtype == DType::e4m3) return std::make_unique<QuantizePart<T, e4m3>>(r);
  if (r.outputs[0].dtype == DType::e5m2) return std::make_unique<QuantizePart<T, e5m2>>(r);
  return nullptr;
}

Made make_quantize_part(const KernelRequest& r, const KernelSettings&) {
  if (r.inputs[0].dtype == DType::f32) return quantize_part_to<float>(r);
  if (r.inputs[0].dtype == DType::bf16) return quantize_part_to<bf16>(r);
  return nullptr;
}
Made make_amax(const KernelRequest& r, const KernelSettings& s) {
  return by_dtype<Amax>(r.inputs[0].dtype, s);
}
Made make_quantize(const KernelRequest& r, const KernelSettings& s) {
  if (r.inputs[0].dtype == DType::f32) return quantize_to<float>(r, s);
  if (r.inputs[0].dtype == DType::bf16) return quantize_to<bf16>(r, s);
  return nullptr;
}

}  // namespace

CONSIST_KERNEL(quantize_part, make_quantize_part);
CONSIST_KERNEL(amax, make_amax);
CONSIST_KERNEL(quantize, make_quantize);

}  // namespace consist::cpu
