#include "plugins/devices/common/float8_experts.h"
#include "plugins/devices/cuda/kernels/common/kernels.h"
#include "plugins/devices/cuda/kernels/dense/channel_parts.h"

namespace consist::cuda {

CONSIST_FLOAT8_EXPERT_OPS(CONSIST_DECLARE_MAKER)

namespace {

constexpr kernels::Maker<KernelSettings> table[] = {
    CONSIST_KERNEL_OPS(CONSIST_MAKER_ENTRY) CONSIST_FLOAT8_EXPERT_OPS(CONSIST_MAKER_ENTRY) CONSIST_MAKER_ENTRY(split_channels) CONSIST_MAKER_ENTRY(merge_channels)};

}  // namespace

Made make_kernel(const KernelRequest& request, const KernelSettings& settings) {
  return kernels::make_from<KernelSettings>(table, request, settings);
}

}  // namespace consist::cuda
