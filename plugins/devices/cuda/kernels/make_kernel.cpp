#include "plugins/devices/cuda/kernels/kernels.h"

namespace consist::cuda {
namespace {

constexpr kernels::Maker<KernelSettings> table[] = {CONSIST_KERNEL_OPS(CONSIST_MAKER_ENTRY)};

}  // namespace

Made make_kernel(const KernelRequest& request, const KernelSettings& settings) {
  return kernels::make_from<KernelSettings>(table, request, settings);
}

}  // namespace consist::cuda
