// repeat_heads and its gradient: copies of whole rows.
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"
#include "plugins/devices/common/repeat_heads.h"

namespace consist::cuda {
namespace {

class RepeatHeads final : public Kernel {
 public:
  explicit RepeatHeads(const KernelRequest& r) : repetition_(kernels::HeadRepetition::of_forward(r)) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const auto size = static_cast<std::int64_t>(size_of(in[0].dtype)), bytes = repetition_.head_elements * size;
    for (std::int64_t head = 0; head < repetition_.heads; ++head) {
      cuda::check(cudaMemcpyAsync(out[0].as<char>() + head * bytes, in[0].as<char>() + repetition_.source(head) * size,
                                  static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream_of(queue)),
                  "copy a head");
    }
  }

 private:
  kernels::HeadRepetition repetition_;
};

template <typename G>
__global__ void __launch_bounds__(threads) add_elements(const G* __restrict__ from, G* to, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) to[i] = rounded<G>(number(to[i]) + number(from[i]));
}

template <typename G>
class RepeatHeadsGrad final : public Kernel {
 public:
  explicit RepeatHeadsGrad(const KernelRequest& r) : repetition_(kernels::HeadRepetition::of_gradient(r)) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    if (at(in, 1).absent()) {
      cuda::check(cudaMemsetAsync(out[0].data, 0, static_cast<std::size_t>(out[0].shape.elements()) * sizeof(G), stream),
                  "set the gradient of heads to zero");
    }
    const std::int64_t count = repetition_.head_elements;
    for (std::int64_t head = 0; head < repetition_.heads; ++head) {
      add_elements<G><<<blocks_of(divided_up(count, threads)), threads, 0, stream>>>(
          in[0].as<G>() + head * count, out[0].as<G>() + repetition_.source(head), count);
      check_launch("repeat_heads_grad");
    }
  }

 private:
  kernels::HeadRepetition repetition_;
};

Made make_repeat_heads(const KernelRequest& r, const KernelSettings& /*s*/) {
  return std::make_unique<RepeatHeads>(r);
}
Made make_repeat_heads_grad(const KernelRequest& r, const KernelSettings& /*s*/) {
  return by_dtype<RepeatHeadsGrad>(r.outputs[0].dtype, r);
}

}  // namespace

CONSIST_KERNEL(repeat_heads, make_repeat_heads);
CONSIST_KERNEL(repeat_heads_grad, make_repeat_heads_grad);

}  // namespace consist::cuda
