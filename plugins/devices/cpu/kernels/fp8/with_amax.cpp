// Ops that also state the largest magnitude of what they make: on a processor a second pass over it, much of it from cache.
#include "plugins/devices/common/with_amax.h"

#include "plugins/devices/cpu/kernels/common/kernels.h"

namespace consist::cpu {

CONSIST_KERNEL(rms_norm_amax, kernels::WithAmax::make);
CONSIST_KERNEL(swiglu_amax, kernels::WithAmax::make);
CONSIST_KERNEL(swiglu_grad_amax, kernels::WithAmax::make);
CONSIST_KERNEL(moe_swiglu_amax, kernels::WithAmax::make);
CONSIST_KERNEL(moe_swiglu_grad_amax, kernels::WithAmax::make);
CONSIST_KERNEL(moe_dispatch_amax, kernels::WithAmax::make);
CONSIST_KERNEL(moe_combine_grad_amax, kernels::WithAmax::make);

}  // namespace consist::cpu
