// masked_targets, count_targets and per_target.
#include "plugins/devices/cuda/kernels/common/kernels.h"
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {
namespace {

__global__ void masked_targets(const std::int32_t* __restrict__ targets, const std::int32_t* __restrict__ mask,
                               std::int32_t* __restrict__ left, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) left[i] = mask[i] != 0 ? targets[i] : -1;
}

class MaskedTargets final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t count = in[0].shape.elements();
    if (count == 0) return;
    masked_targets<<<blocks_of(divided_up(count, threads)), threads, 0, stream_of(queue)>>>(
        in[0].as<std::int32_t>(), in[1].as<std::int32_t>(), out[0].as<std::int32_t>(), count);
    check_launch("masked_targets");
  }
};

/// One block. Whole numbers are added, so that the order of the sum does not matter; f32 rounds it once.
__global__ void count_targets(const std::int32_t* __restrict__ targets, std::int64_t count, float* __restrict__ sum) {
  __shared__ unsigned long long all;
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  unsigned long long here = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) here += targets[i] >= 0 ? 1 : 0;
  atomicAdd(&all, here);
  __syncthreads();
  if (threadIdx.x == 0) *sum = static_cast<float>(all);
}

class CountTargets final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    count_targets<<<1, 1024, 0, stream_of(queue)>>>(in[0].as<std::int32_t>(), in[0].shape.elements(), out[0].as<float>());
    check_launch("count_targets");
  }
};

__global__ void per_target(const float* __restrict__ x, const float* __restrict__ count, float* __restrict__ y, float targets,
                           bool squared) {
  const float factor = *count > 0.0F ? targets / *count : 0.0F;
  *y = *x * (squared ? factor * factor : factor);
}

class PerTarget final : public Kernel {
 public:
  explicit PerTarget(const KernelRequest& r)
      : targets_(static_cast<float>(r.attributes.real("targets"))), squared_(r.attributes.integer("power") == 2) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    per_target<<<1, 1, 0, stream_of(queue)>>>(in[0].as<float>(), in[1].as<float>(), out[0].as<float>(), targets_, squared_);
    check_launch("per_target");
  }

 private:
  float targets_;
  bool squared_;
};

Made make_masked_targets(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<MaskedTargets>();
}
Made make_count_targets(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<CountTargets>();
}
Made make_per_target(const KernelRequest& r, const KernelSettings&) {
  return std::make_unique<PerTarget>(r);
}

}  // namespace

CONSIST_KERNEL(masked_targets, make_masked_targets);
CONSIST_KERNEL(count_targets, make_count_targets);
CONSIST_KERNEL(per_target, make_per_target);

}  // namespace consist::cuda
