// grouped_linear, its gradients, and moe_swiglu with its gradient. Rows are sorted by expert. How many each expert has is known
// only when they run, and oneDNN's products have fixed sizes: an expert's rows are taken some at a time (a tile), the last of
// them from a copy with zeros behind them.
#include <algorithm>
#include <cstring>

#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/product.h"
#include "plugins/devices/cpu/kernels/moe/grouped_tiles.h"

namespace consist::cpu {
namespace {

bool known(DType type) {
  return type == DType::f32 || type == DType::bf16;
}

/// Rows of one tensor as bytes.
struct RowBytes {
  std::int64_t row;  ///< bytes
  const char* of(const Buffer& tensor, std::int64_t index) const { return tensor.as<const char>() + index * row; }
  char* into(const Buffer& tensor, std::int64_t index) const { return tensor.as<char>() + index * row; }
};
RowBytes bytes_of(const Buffer& rows) {
  return {rows.shape.last() * static_cast<std::int64_t>(size_of(rows.dtype))};
}

/// The tile's rows, from a copy with zeros behind them if the tile is not full.
const char* whole_tile(const Buffer& tensor, RowBytes bytes, const Tile& tile, std::int64_t size, char* copy) {
  const char* from = bytes.of(tensor, tile.row);
  if (tile.rows == size) return from;
  std::memcpy(copy, from, static_cast<std::size_t>(tile.rows * bytes.row));
  std::memset(copy + tile.rows * bytes.row, 0, static_cast<std::size_t>((size - tile.rows) * bytes.row));
  return copy;
}

/// y = x wᵀ of each row's expert, or with `backward` dx = dy w.
class GroupedProduct final : public Kernel {
 public:
  GroupedProduct(const KernelRequest& r, const KernelSettings& s, bool backward)
      : experts_(r.inputs[1].shape[0]),
        size_(tile_rows(r.inputs[0].shape[1], experts_)),
        in_(bytes_of(r.inputs[0])),
        out_(bytes_of(r.outputs[0])),
        weight_(r.inputs[1].shape[1] * r.inputs[1].shape[2] * static_cast<std::int64_t>(size_of(r.inputs[1].dtype))),
        product_(size_, r.outputs[0].shape.last(), r.inputs[0].shape.last(), {r.inputs[0].dtype}, {r.inputs[1].dtype, !backward},
                 r.outputs[0].dtype, false, s) {}
  std::int64_t workspace_bytes() const override {
    return padded(size_ * in_.row) + padded(size_ * out_.row) + product_.workspace_bytes();
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    char* const copy = static_cast<char*>(workspace);
    char* const made = copy + padded(size_ * in_.row);
    char* const scratch = made + padded(size_ * out_.row);
    const std::int64_t used = each_tile(in[2].as<std::int32_t>(), experts_, size_, [&](const Tile& tile) {
      const bool full = tile.rows == size_;
      char* const to = out_.into(out[0], tile.row);
      product_.run(whole_tile(in[0], in_, tile, size_, copy), in[1].as<const char>() + tile.expert * weight_, full ? to : made,
                   scratch);
      if (!full) std::memcpy(to, made, static_cast<std::size_t>(tile.rows * out_.row));
    });
    std::memset(out_.into(out[0], used), 0, static_cast<std::size_t>((out[0].shape[1] - used) * out_.row));
  }

 private:
  std::int64_t experts_, size_;
  RowBytes in_, out_;
  std::int64_t weight_;  // bytes of an expert's
  Product product_;
};

/// dw (+)= dyᵀ x of each expert's rows, added up in f32.
class GroupedWeightGrad final : public Kernel {
 public:
  GroupedWeightGrad(const KernelRequest& r, const KernelSettings& s)
      : experts_(r.outputs[0].shape[0]),
        size_(tile_rows(r.inputs[0].shape[1], experts_)),
        elements_(r.outputs[0].shape[1] * r.outputs[0].shape[2]),
        x_(bytes_of(r.inputs[0])),
        dy_(bytes_of(r.inputs[1])),
        narrow_(r.outputs[0].dtype != DType::f32),
        accumulate_(!at(r.inputs, 3).absent()),
        first_(product(r, s, false)),
        next_(product(r, s, true)) {}
  std::int64_t workspace_bytes() const override {
    return padded(size_ * x_.row) + padded(size_ * dy_.row) + (narrow_ ? padded(4 * elements_) : 0) +
           std::max(first_.workspace_bytes(), next_.workspace_bytes());
  }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    char* const x = static_cast<char*>(workspace);
    char* const dy = x + padded(size_ * x_.row);
    char* const wide = dy + padded(size_ * dy_.row);
    char* const scratch = wide + (narrow_ ? padded(4 * elements_) : 0);
    const auto* counts = in[2].as<std::int32_t>();
    const std::int64_t bytes = elements_ * static_cast<std::int64_t>(size_of(out[0].dtype));
    for (std::int64_t e = 0; e < experts_; ++e) {
      if (counts[e] == 0 && !accumulate_) std::memset(out[0].as<char>() + e * bytes, 0, static_cast<std::size_t>(bytes));
    }
    each_tile(counts, experts_, size_, [&](const Tile& tile) {
      char* const mine = out[0].as<char>() + tile.expert * bytes;
      char* const sum = narrow_ ? wide : mine;
      if (tile.first && narrow_ && accumulate_) convert(mine, out[0].dtype, wide, DType::f32, elements_);
      Product& product = tile.first && !accumulate_ ? first_ : next_;
      product.run(whole_tile(in[1], dy_, tile, size_, dy), whole_tile(in[0], x_, tile, size_, x), sum, scratch);
      const bool last = tile.rows < size_ || tile.row + tile.rows == end_of(counts, tile.expert);
      if (narrow_ && last) convert(wide, DType::f32, mine, out[0].dtype, elements_);
    });
  }

 private:
  Product product(const KernelRequest& r, const KernelSettings& s, bool accumulate) const {
    return {r.outputs[0].shape[1],
            r.outputs[0].shape[2],
            size_,
            {r.inputs[1].dtype, true},
            {r.inputs[0].dtype},
            DType::f32,
            accumulate,
            s};
  }
  static std::int64_t end_of(const std::int32_t* counts, std::int64_t expert) {
    std::int64_t end = 0;
    for (std::int64_t e = 0; e <= expert; ++e) end += counts[e];
    return end;
  }
  std::int64_t experts_, size_, elements_;  // elements_: of an expert's weight
  RowBytes x_, dy_;
  bool narrow_, accumulate_;
  Product first_, next_;
};

template <typename T>
class MoeSwiglu final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T* gate_up = in[0].as<T>();          // [rows, 2 f]
    const float* weights = in[1].as<float>();  // [rows]
    T* h = out[0].as<T>();                     // [rows, f]
    const std::int64_t f = out[0].shape.last();
    parallel_for_elements(out[0].shape.rows(), f, [=](std::int64_t row, std::int64_t i) {
      const float g = load(gate_up[row * 2 * f + i]);
      store(h[row * f + i], weights[row] * (g * sigmoid(g)) * load(gate_up[row * 2 * f + f + i]));
    });
  }
};

template <typename T>
class MoeSwigluGrad final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T *dh = in[0].as<T>(), *gate_up = in[1].as<T>();
    const float* weights = in[2].as<float>();
    T* d = out[0].as<T>();
    float* dweights = out[1].as<float>();
    const std::int64_t f = in[0].shape.last();
    parallel_for(in[0].shape.rows(), [=](std::int64_t row) {
      const T *gate = gate_up + row * 2 * f, *up = gate + f, *dy = dh + row * f;
      T *dgate = d + row * 2 * f, *dup = dgate + f;
      const float w = weights[row];
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = 0; i < f; ++i) {
        const float g = load(gate[i]), u = load(up[i]), y = load(dy[i]), s = sigmoid(g);
        sum += y * g * s * u;
        store(dgate[i], w * y * u * s * (1.0F + g * (1.0F - s)));
        store(dup[i], w * y * g * s);
      }
      dweights[row] = sum;
    });
  }
};

Made make_grouped_linear(const KernelRequest& r, const KernelSettings& s) {
  return known(r.inputs[0].dtype) ? std::make_unique<GroupedProduct>(r, s, false) : nullptr;
}
Made make_grouped_linear_input_grad(const KernelRequest& r, const KernelSettings& s) {
  return known(r.inputs[0].dtype) ? std::make_unique<GroupedProduct>(r, s, true) : nullptr;
}
Made make_grouped_linear_weight_grad(const KernelRequest& r, const KernelSettings& s) {
  return known(r.inputs[0].dtype) && known(r.outputs[0].dtype) ? std::make_unique<GroupedWeightGrad>(r, s) : nullptr;
}
Made make_moe_swiglu(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<MoeSwiglu>(r.inputs[0].dtype);
}
Made make_moe_swiglu_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<MoeSwigluGrad>(r.inputs[0].dtype);
}

}  // namespace

CONSIST_KERNEL(grouped_linear, make_grouped_linear);
CONSIST_KERNEL(grouped_linear_input_grad, make_grouped_linear_input_grad);
CONSIST_KERNEL(grouped_linear_weight_grad, make_grouped_linear_weight_grad);
CONSIST_KERNEL(moe_swiglu, make_moe_swiglu);
CONSIST_KERNEL(moe_swiglu_grad, make_moe_swiglu_grad);

}  // namespace consist::cpu
