// Ops that also state the largest magnitude of what they make: on a processor a second pass over it, much of it from cache.
#include "plugins/devices/common/with_amax.h"

#include "plugins/devices/cpu/kernels/common/kernels.h"

namespace consist::cpu {

Made make_rms_norm_amax(const KernelRequest& r, const KernelSettings& s) {
  return kernels::WithAmax::make(r, s, make_rms_norm, make_amax);
}
Made make_swiglu_amax(const KernelRequest& r, const KernelSettings& s) {
  return kernels::WithAmax::make(r, s, make_swiglu, make_amax);
}
Made make_swiglu_grad_amax(const KernelRequest& r, const KernelSettings& s) {
  return kernels::WithAmax::make(r, s, make_swiglu_grad, make_amax);
}
Made make_moe_swiglu_amax(const KernelRequest& r, const KernelSettings& s) {
  return kernels::WithAmax::make(r, s, make_moe_swiglu, make_amax);
}
Made make_moe_swiglu_grad_amax(const KernelRequest& r, const KernelSettings& s) {
  return kernels::WithAmax::make(r, s, make_moe_swiglu_grad, make_amax);
}
Made make_moe_dispatch_amax(const KernelRequest& r, const KernelSettings& s) {
  return kernels::WithAmax::make(r, s, make_moe_dispatch, make_amax);
}
Made make_moe_combine_grad_amax(const KernelRequest& r, const KernelSettings& s) {
  return kernels::WithAmax::make(r, s, make_moe_combine_grad, make_amax);
}

}  // namespace consist::cpu
