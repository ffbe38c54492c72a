// Products of 8-bit floats: fp8_linear and its gradients, each one product of cuBLASLt with both operands stored along what is
// summed.
#include <algorithm>
#include <string>

#include "plugins/devices/cuda/kernels/fp8/fp8.h"
#include "plugins/devices/cuda/matmul.h"

namespace consist::cuda {
namespace {

/// y [m, n] (+)= descales · a [m, k] b [n, k]ᵀ + bias [n]. Inputs a, descale, b, descale, then the bias (of a linear) or the
/// accumulator (of a gradient).
MatmulShape shape_of(const KernelRequest& r) {
  const Shape& a = r.inputs[0].shape;
  const bool linear = r.op == "fp8_linear", extra = !at(r.inputs, 4).absent();
  const OperandScalings scalings = operand_scalings(r.op, r.attributes);
  const std::int64_t m = r.op == "fp8_linear_weight_grad" ? a[0] : a.rows();
  return {.m = m,
          .n = r.inputs[2].shape[0],
          .k = a.elements() / std::max<std::int64_t>(m, 1),
          .transpose_b = true,
          .a = r.inputs[0].dtype,
          .b = r.inputs[2].dtype,
          .d = r.outputs[0].dtype,
          .add = extra && !linear,
          .bias = extra && linear,
          .scaled = true,
          .a_scaling = scalings.a,
          .b_scaling = scalings.b,
          .fast_accumulation = r.attributes.integer("fast_accumulation") != 0};
}

/// Throws UnavailableError where cuBLASLt does not multiply with scales per row or block.
void check_scaling(const MatmulShape& shape, const KernelSettings& s) {
  if (shape.a_scaling == Scaling::tensor) return;
  constexpr int hopper = 90;
  if (s.compute_capability != hopper) {
    throw UnavailableError("this GPU has compute capability " + std::to_string(s.compute_capability / 10) + "." +
                           std::to_string(s.compute_capability % 10) +
                           ", and cuBLASLt multiplies 8-bit floats with scales per row or block on 9.0 (Hopper) alone; use "
                           "--fp8.scaling tensor or delayed");
  }
  constexpr std::int64_t multiple = 4;
  if (shape.a_scaling == Scaling::block_1d && shape.m % multiple != 0) {
    throw UnavailableError("--fp8.scaling block: cuBLASLt takes rows in multiples of 4, and a product has " +
                           std::to_string(shape.m) + ": choose --batch and --sequence accordingly");
  }
}

void check_sizes(const KernelRequest& r, const MatmulShape& s) {
  constexpr std::int64_t multiple = 16;
  if (s.n % multiple == 0 && s.k % multiple == 0) return;
  throw UnavailableError(
      "op '" + std::string(r.op) + "' multiplies " + std::to_string(s.m) + "x" + std::to_string(s.k) + " by " +
      std::to_string(s.k) + "x" + std::to_string(s.n) + ", and tensor cores take 8-bit floats in multiples of " +
      std::to_string(multiple) +
      ": choose --batch and --sequence so that tokens per rank are one, or leave this linear in bf16 (--fp8.except)");
}

class Fp8Product final : public Kernel {
 public:
  Fp8Product(const MatmulShape& shape, const KernelSettings& s) : product_(*s.matmuls, shape) {}
  std::int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    product_.enqueue({.a = in[0].data,
                      .b = in[2].data,
                      .d = out[0].data,
                      .bias = at(in, 4).data,
                      .a_scale = in[1].data,
                      .b_scale = in[3].data},
                     workspace, static_cast<cudaStream_t>(queue));
  }

 private:
  Matmul product_;
};

Made make_fp8_linear(const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  if (!is_float(r.outputs[0].dtype)) return nullptr;
  const MatmulShape shape = shape_of(r);
  check_sizes(r, shape);
  check_scaling(shape, s);
  return std::make_unique<Fp8Product>(shape, s);
}

}  // namespace

CONSIST_KERNEL(fp8_linear, make_fp8_linear);
CONSIST_KERNEL(fp8_linear_input_grad, make_fp8_linear);
CONSIST_KERNEL(fp8_linear_weight_grad, make_fp8_linear);

}  // namespace consist::cuda
