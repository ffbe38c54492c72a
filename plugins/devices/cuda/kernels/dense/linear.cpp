// linear and its gradients: each is one matrix product of cuBLASLt (the bias gradient is a kernel of its own). y and dy may be
// strided views of wider tensors.
#include "plugins/devices/common/packed_linear.h"
#include "plugins/devices/cuda/kernels/common/kernels.h"
#include "plugins/devices/cuda/matmul.h"

namespace consist::cuda {
namespace {

bool multipliable(DType t) {
  return t == DType::f32 || t == DType::bf16;
}

bool same(DType t, const Buffer& x, const Buffer& y) {
  return multipliable(t) && x.dtype == t && y.dtype == t;
}

/// y [M, N] (+)= x [M, K] wᵀ + bias; w [N, K]. Inputs: x, w, bias, sum.
class Linear final : public Kernel {
 public:
  Linear(const KernelRequest& r, const KernelSettings& s)
      : product_(*s.matmuls, {.m = r.inputs[0].shape.rows(),
                              .n = r.outputs[0].shape.last(),
                              .k = r.inputs[0].shape.last(),
                              .transpose_b = true,
                              .a = r.inputs[0].dtype,
                              .b = r.inputs[1].dtype,
                              .d = r.outputs[0].dtype,
                              .d_row_stride = r.outputs[0].row_stride,
                              .add = !at(r.inputs, 3).absent(),
                              .bias = !at(r.inputs, 2).absent()}) {}
  std::int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    product_.enqueue(in[0].data, in[1].data, out[0].data, at(in, 2).data, workspace, static_cast<cudaStream_t>(queue));
  }

 private:
  Matmul product_;
};

/// dx [M, K] (+)= dy [M, N] w [N, K].
class LinearInputGrad final : public Kernel {
 public:
  LinearInputGrad(const KernelRequest& r, const KernelSettings& s)
      : product_(*s.matmuls, {.m = r.inputs[0].shape.rows(),
                              .n = r.outputs[0].shape.last(),
                              .k = r.inputs[0].shape.last(),
                              .a = r.inputs[0].dtype,
                              .b = r.inputs[1].dtype,
                              .d = r.outputs[0].dtype,
                              .a_row_stride = r.inputs[0].row_stride,
                              .add = !at(r.inputs, 2).absent()}) {}
  std::int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    product_.enqueue(in[0].data, in[1].data, out[0].data, nullptr, workspace, static_cast<cudaStream_t>(queue));
  }

 private:
  Matmul product_;
};

/// dw [N, K] (+)= dyᵀ [N, M] x [M, K]. Inputs: x, dy, accumulator.
class LinearWeightGrad final : public Kernel {
 public:
  LinearWeightGrad(const KernelRequest& r, const KernelSettings& s)
      : product_(*s.matmuls, {.m = r.inputs[1].shape.last(),
                              .n = r.inputs[0].shape.last(),
                              .k = r.inputs[0].shape.rows(),
                              .transpose_a = true,
                              .a = r.inputs[1].dtype,
                              .b = r.inputs[0].dtype,
                              .d = r.outputs[0].dtype,
                              .a_row_stride = r.inputs[1].row_stride,
                              .add = !at(r.inputs, 2).absent()}) {}
  std::int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    product_.enqueue(in[1].data, in[0].data, out[0].data, nullptr, workspace, static_cast<cudaStream_t>(queue));
  }

 private:
  Matmul product_;
};

Made make_linear(const KernelRequest& r, const KernelSettings& s) {
  if (!same(r.outputs[0].dtype, r.inputs[0], r.inputs[1])) return nullptr;
  return std::make_unique<Linear>(r, s);
}

Made make_linear_input_grad(const KernelRequest& r, const KernelSettings& s) {
  if (!same(r.outputs[0].dtype, r.inputs[0], r.inputs[1])) return nullptr;
  return std::make_unique<LinearInputGrad>(r, s);
}

Made make_linear_weight_grad(const KernelRequest& r, const KernelSettings& s) {
  if (!same(r.inputs[0].dtype, r.inputs[0], r.inputs[1]) || !multipliable(r.outputs[0].dtype)) return nullptr;
  return std::make_unique<LinearWeightGrad>(r, s);
}

}  // namespace

CONSIST_KERNEL(linear, make_linear);
CONSIST_KERNEL(linear_input_grad, make_linear_input_grad);
CONSIST_KERNEL(linear_weight_grad, make_linear_weight_grad);
CONSIST_KERNEL(packed_linear, kernels::make_packed<kernels::PackedForward>);
CONSIST_KERNEL(packed_linear_input_grad, kernels::make_packed<kernels::PackedInputGrad>);
CONSIST_KERNEL(packed_linear_weight_grad, kernels::make_packed<kernels::PackedWeightGrad>);

}  // namespace consist::cuda
