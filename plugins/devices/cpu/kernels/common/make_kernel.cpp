// The one function that a kernel library exports.
#include "plugins/devices/cpu/kernels/common/kernels.h"

extern "C" __attribute__((visibility("default"))) consist::Kernel* consist_cpu_make_kernel(
    const consist::KernelRequest& request, const consist::cpu::KernelSettings& settings) {
  return consist::kernels::Registered<consist::cpu::KernelSettings>::make(request, settings).release();
}
