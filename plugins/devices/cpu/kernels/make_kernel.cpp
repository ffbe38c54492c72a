// The one function that a kernel library exports.
#include "plugins/devices/cpu/kernels/channel_parts.h"
#include "plugins/devices/cpu/kernels/kernels.h"

namespace consist::cpu {
namespace {

constexpr kernels::Maker<KernelSettings> table[] = {
    CONSIST_KERNEL_OPS(CONSIST_MAKER_ENTRY) CONSIST_MAKER_ENTRY(split_channels) CONSIST_MAKER_ENTRY(merge_channels)};

}  // namespace
}  // namespace consist::cpu

extern "C" __attribute__((visibility("default"))) consist::Kernel* consist_cpu_make_kernel(
    const consist::KernelRequest& request, const consist::cpu::KernelSettings& settings) {
  return consist::kernels::make_from<consist::cpu::KernelSettings>(consist::cpu::table, request, settings).release();
}
