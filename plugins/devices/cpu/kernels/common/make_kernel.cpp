// The one function that a kernel library exports.
#include "plugins/devices/common/float8_experts.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/dense/channel_parts.h"

namespace consist::cpu {

CONSIST_FLOAT8_EXPERT_OPS(CONSIST_DECLARE_MAKER)

namespace {

constexpr kernels::Maker<KernelSettings> table[] = {
    CONSIST_KERNEL_OPS(CONSIST_MAKER_ENTRY) CONSIST_FLOAT8_EXPERT_OPS(CONSIST_MAKER_ENTRY) CONSIST_MAKER_ENTRY(split_channels) CONSIST_MAKER_ENTRY(merge_channels)};

}  // namespace
}  // namespace consist::cpu

extern "C" __attribute__((visibility("default"))) consist::Kernel* consist_cpu_make_kernel(
    const consist::KernelRequest& request, const consist::cpu::KernelSettings& settings) {
  return consist::kernels::make_from<consist::cpu::KernelSettings>(consist::cpu::table, request, settings).release();
}
