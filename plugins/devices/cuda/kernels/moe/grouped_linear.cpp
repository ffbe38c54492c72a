// grouped_linear and its gradients: which product, of which sizes, on which GPU.
#include "plugins/devices/cuda/kernels/fp8/fp8.h"
#include "plugins/devices/cuda/kernels/moe/grouped.h"

namespace consist::cuda {
namespace {

Made make_product(GroupedProduct product, const GroupedSizes& sizes, DType type, DType made, const KernelSettings& settings) {
  if (type == DType::bf16 && is_float(made) && settings.compute_capability == 90 && !settings.plain_grouped) {
    if (Made kernel = make_hopper_product(product, sizes, made, settings)) return kernel;
  }
  return make_plain_product(product, sizes, type, made);
}

bool same(const KernelRequest& r) {
  return is_float(r.inputs[0].dtype) && r.inputs[1].dtype == r.inputs[0].dtype;
}

Made make_float8_product(GroupedProduct product, const GroupedSizes& sizes, const KernelRequest& r, const KernelSettings& s) {
  require_fp8(s);
  if (r.outputs[0].dtype == DType::bf16 && s.compute_capability == 90 && !s.plain_grouped) {
    const bool fast = r.attributes.integer("fast_accumulation") != 0;
    if (Made kernel = make_hopper_float8_product(product, sizes, r.inputs[0].dtype, fast, s)) return kernel;
  }
  return make_plain_float8_product(product, sizes, r);
}

Made make_grouped_linear(const KernelRequest& r, const KernelSettings& s) {
  const Shape &x = r.inputs[0].shape, &w = r.inputs[1].shape;
  if (!same(r) || r.outputs[0].dtype != r.inputs[0].dtype) return nullptr;
  const GroupedSizes sizes{.experts = static_cast<int>(w[0]), .rows = x.rows(), .n = w[1], .k = w[2]};
  return make_product(GroupedProduct::forward, sizes, r.inputs[0].dtype, r.outputs[0].dtype, s);
}
Made make_grouped_linear_input_grad(const KernelRequest& r, const KernelSettings& s) {
  const Shape &dy = r.inputs[0].shape, &w = r.inputs[1].shape;
  if (!same(r) || r.outputs[0].dtype != r.inputs[0].dtype) return nullptr;
  const GroupedSizes sizes{.experts = static_cast<int>(w[0]), .rows = dy.rows(), .n = w[2], .k = w[1]};
  return make_product(GroupedProduct::input_grad, sizes, r.inputs[0].dtype, r.outputs[0].dtype, s);
}
Made make_grouped_linear_weight_grad(const KernelRequest& r, const KernelSettings& s) {
  const Shape &x = r.inputs[0].shape, &dw = r.outputs[0].shape;
  if (!same(r)) return nullptr;
  const GroupedSizes sizes{.experts = static_cast<int>(dw[0]), .rows = x.rows(), .m = dw[1], .n = dw[2]};
  return make_product(GroupedProduct::weight_grad, sizes, r.inputs[0].dtype, r.outputs[0].dtype, s);
}
Made make_fp8_grouped_linear(const KernelRequest& r, const KernelSettings& s) {
  const Shape &x = r.inputs[0].shape, &w = r.inputs[2].shape;
  return make_float8_product(GroupedProduct::forward, {.experts = static_cast<int>(w[0]), .rows = x.rows(), .n = w[1], .k = w[2]},
                             r, s);
}
Made make_fp8_grouped_linear_input_grad(const KernelRequest& r, const KernelSettings& s) {
  const Shape &dy = r.inputs[0].shape, &wt = r.inputs[2].shape;
  return make_float8_product(GroupedProduct::input_grad,
                             {.experts = static_cast<int>(wt[1]), .rows = dy.rows(), .n = wt[0], .k = wt[2]}, r, s);
}

}  // namespace

CONSIST_KERNEL(grouped_linear, make_grouped_linear);
CONSIST_KERNEL(grouped_linear_input_grad, make_grouped_linear_input_grad);
CONSIST_KERNEL(grouped_linear_weight_grad, make_grouped_linear_weight_grad);
CONSIST_KERNEL(fp8_grouped_linear, make_fp8_grouped_linear);
CONSIST_KERNEL(fp8_grouped_linear_input_grad, make_fp8_grouped_linear_input_grad);

}  // namespace consist::cuda
