// linear, linear_input_grad, linear_weight_grad, linear_bias_grad. Rows are tokens: x [rows, in], w [out, in], y [rows, out].
// y and dy may be strided views of wider tensors.
#include "plugins/devices/common/packed_linear.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/product.h"

namespace consist::cpu {
namespace {

bool known(DType type) {
  return type == DType::f32 || type == DType::bf16;
}

/// y (+)= x wᵀ + bias. Inputs: x, w, bias, sum.
class Linear final : public Kernel {
 public:
  Linear(const KernelRequest& r, const KernelSettings& s)
      : rows_(r.inputs[0].shape.rows()),
        out_(r.inputs[1].shape[0]),
        row_stride_(r.outputs[0].leading_dimension()),
        product_(rows_, out_, r.inputs[1].shape[1], {r.inputs[0].dtype}, {r.inputs[1].dtype, true}, r.outputs[0].dtype,
                 !at(r.inputs, 3).absent(), s, row_stride_) {}
  std::int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    product_.run(in[0].data, in[1].data, out[0].data, workspace);
    if (at(in, 2).absent()) return;
    if (out[0].dtype == DType::f32)
      add_bias(in[2].as<float>(), out[0].as<float>());
    else
      add_bias(in[2].as<bf16>(), out[0].as<bf16>());
  }

 private:
  template <typename T>
  void add_bias(const T* bias, T* y) const {
    parallel_for(rows_, [=, this](std::int64_t row) {
      T* to = y + row * row_stride_;
      for (std::int64_t i = 0; i < out_; ++i) store(to[i], load(to[i]) + load(bias[i]));
    });
  }
  std::int64_t rows_, out_, row_stride_;
  Product product_;
};

/// dx (+)= dy w
class LinearInputGrad final : public Kernel {
 public:
  LinearInputGrad(const KernelRequest& r, const KernelSettings& s)
      : product_(r.inputs[0].shape.rows(), r.inputs[1].shape[1], r.inputs[1].shape[0],
                 {r.inputs[0].dtype, false, r.inputs[0].row_stride}, {r.inputs[1].dtype}, r.outputs[0].dtype,
                 !at(r.inputs, 2).absent(), s) {}
  std::int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    product_.run(in[0].data, in[1].data, out[0].data, workspace);
  }

 private:
  Product product_;
};

/// dw (+)= dyᵀ x
class LinearWeightGrad final : public Kernel {
 public:
  LinearWeightGrad(const KernelRequest& r, const KernelSettings& s)
      : product_(r.outputs[0].shape[0], r.outputs[0].shape[1], r.inputs[0].shape.rows(),
                 {r.inputs[1].dtype, true, r.inputs[1].row_stride}, {r.inputs[0].dtype}, r.outputs[0].dtype,
                 !at(r.inputs, 2).absent(), s) {}
  std::int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    product_.run(in[1].data, in[0].data, out[0].data, workspace);
  }

 private:
  Product product_;
};

/// db (+)= Σ over rows of dy. Each thread sums columns of its own: the order of the rows is always the same.
template <typename T, typename G>
class LinearBiasGrad final : public Kernel {
 public:
  explicit LinearBiasGrad(const KernelSettings& s) : threads_(s.threads) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T* dy = in[0].as<T>();  // [rows, n], `stride` apart
    G* db = out[0].as<G>();       // [n]
    const std::int64_t rows = in[0].shape.rows(), n = in[0].shape.last(), stride = in[0].leading_dimension();
    const bool accumulate = !at(in, 1).absent();
    parallel_for(threads_, [=, this](int part) {
      const Part columns = part_of(n, part, threads_);
      constexpr std::int64_t width = 64;
      for (std::int64_t first = columns.first; first < columns.last; first += width) {
        const std::int64_t count = std::min(width, columns.last - first);
        float sum[width] = {};
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t i = 0; i < count; ++i) sum[i] += load(dy[row * stride + first + i]);
        }
        for (std::int64_t i = 0; i < count; ++i) store(db[first + i], accumulate ? load(db[first + i]) + sum[i] : sum[i]);
      }
    });
  }

 private:
  int threads_;
};

Made make_linear(const KernelRequest& r, const KernelSettings& s) {
  return known(r.inputs[0].dtype) && r.inputs[0].dtype == r.outputs[0].dtype ? std::make_unique<Linear>(r, s) : nullptr;
}
Made make_linear_input_grad(const KernelRequest& r, const KernelSettings& s) {
  return known(r.inputs[0].dtype) && r.inputs[0].dtype == r.outputs[0].dtype ? std::make_unique<LinearInputGrad>(r, s) : nullptr;
}
Made make_linear_weight_grad(const KernelRequest& r, const KernelSettings& s) {
  const bool legal = known(r.inputs[0].dtype) && (r.outputs[0].dtype == DType::f32 || r.inputs[0].dtype == DType::bf16);
  return legal ? std::make_unique<LinearWeightGrad>(r, s) : nullptr;
}
Made make_linear_bias_grad(const KernelRequest& r, const KernelSettings& s) {
  return by_dtypes<LinearBiasGrad>(r.inputs[0].dtype, r.outputs[0].dtype, s);
}

}  // namespace

CONSIST_KERNEL(linear, make_linear);
CONSIST_KERNEL(linear_input_grad, make_linear_input_grad);
CONSIST_KERNEL(linear_weight_grad, make_linear_weight_grad);
CONSIST_KERNEL(linear_bias_grad, make_linear_bias_grad);
CONSIST_KERNEL(packed_linear, kernels::make_packed<kernels::PackedForward>);
CONSIST_KERNEL(packed_linear_input_grad, kernels::make_packed<kernels::PackedInputGrad>);
CONSIST_KERNEL(packed_linear_weight_grad, kernels::make_packed<kernels::PackedWeightGrad>);

}  // namespace consist::cpu
