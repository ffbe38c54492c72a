// Makers of kernels that are not in CONSIST_KERNEL_OPS.
#pragma once

#include "plugins/devices/cuda/kernels/common/kernels.h"

namespace consist::cuda {

Made make_split_channels(const KernelRequest& r, const KernelSettings& s);
Made make_merge_channels(const KernelRequest& r, const KernelSettings& s);

}  // namespace consist::cuda
