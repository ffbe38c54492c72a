// Ops of mixtures whose experts multiply 8-bit floats, beside those in makers.h: every device has kernels for them, too.
#pragma once

#include "plugins/devices/common/makers.h"

// clang-format off
#define CONSIST_FLOAT8_EXPERT_OPS(apply) \
  apply(fp8_grouped_linear) \
  apply(fp8_grouped_linear_input_grad) \
  apply(moe_dispatch_amax) \
  apply(moe_combine_grad_amax) \
  apply(moe_swiglu_amax) \
  apply(moe_swiglu_grad_amax)
// clang-format on
