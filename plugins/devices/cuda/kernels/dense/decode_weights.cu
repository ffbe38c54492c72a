// decode_weights: weights from blocks of codes. It writes four times what it reads, and is as fast as memory takes that.
#include <cuda_fp8.h>

#include "consist/weight_blocks.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

using Code = WeightBlocks::Code;

constexpr int codes_at_once = 8;  // whose weights are 16 bytes of bf16

struct Nf4Table {
  float value[16];
};
Nf4Table nf4_table() {
  Nf4Table table{};
  std::copy(nf4_values.begin(), nf4_values.end(), table.value);
  return table;
}

__device__ __forceinline__ float e4m3_number(std::uint32_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3)));
}

/// The numbers of 4-bit codes, in shared memory: 16 banks, so that lanes with different codes do not wait for each other.
__device__ __forceinline__ const float* shared_table(const Nf4Table& values) {
  __shared__ float table[16];
  if (threadIdx.x < 16) table[threadIdx.x] = values.value[threadIdx.x];
  __syncthreads();
  return table;
}

/// Each thread eight weights of one block. `packs_in_block`: such groups.
template <Code code, typename T>
__global__ void __launch_bounds__(threads) decode_packs(const std::uint8_t* __restrict__ bytes, T* __restrict__ weights, std::uint32_t packs,
                                                        std::uint32_t packs_in_block, std::uint32_t block_bytes, Nf4Table values) {
  const float* const table = shared_table(values);
  const std::uint32_t pack = blockIdx.x * threads + threadIdx.x;
  if (pack >= packs) return;
  const std::uint32_t block = pack / packs_in_block, within = pack % packs_in_block;
  const std::uint8_t* const from = bytes + static_cast<std::int64_t>(block) * block_bytes;
  const float scale = *reinterpret_cast<const float*>(from);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(from + weight_scale_bytes);
  Words<T, codes_at_once> made;
  if constexpr (code == Code::nf4) {
    const std::uint32_t codes = words[within];
#pragma unroll
    for (int i = 0; i < codes_at_once; i += 2)
      made.set_pair(i, table[codes >> 4 * i & 15U] * scale, table[codes >> (4 * i + 4) & 15U] * scale);
  } else {
    const std::uint32_t codes[2] = {words[2 * within], words[2 * within + 1]};
#pragma unroll
    for (int i = 0; i < codes_at_once; i += 2) {
      const std::uint32_t pair = codes[i / 4] >> i % 4 * 8;
      made.set_pair(i, e4m3_number(pair & 255U) * scale, e4m3_number(pair >> 8 & 255U) * scale);
    }
  }
  store_words<codes_at_once>(weights + static_cast<std::int64_t>(pack) * codes_at_once, made);
}

/// Blocks of any length: each thread one weight.
template <Code code, typename T>
__global__ void __launch_bounds__(threads) decode_each(const std::uint8_t* __restrict__ bytes, T* __restrict__ weights,
                                                       std::int64_t count, std::int64_t length, std::int64_t block_bytes,
                                                       Nf4Table values) {
  const float* const table = shared_table(values);
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (at >= count) return;
  const std::uint8_t* const from = bytes + at / length * block_bytes;
  std::uint32_t scale = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) scale |= static_cast<std::uint32_t>(from[i]) << 8 * i;
  const std::int64_t within = at % length;
  float number;
  if constexpr (code == Code::nf4)
    number = table[from[weight_scale_bytes + within / 2] >> within % 2 * 4 & 15];
  else
    number = e4m3_number(from[weight_scale_bytes + within]);
  weights[at] = rounded<T>(number * __uint_as_float(scale));
}

template <Code code, typename T>
void decode_on(cudaStream_t stream, const WeightBlocks& blocks, const std::uint8_t* bytes, T* weights, std::int64_t count) {
  const std::int64_t packs = count / codes_at_once, size = blocks.bytes();
  if (blocks.length % codes_at_once == 0 && in_packs(count, codes_at_once, {bytes, weights}) && packs < std::int64_t{1} << 31)
    decode_packs<code><<<blocks_of(divided_up(packs, threads)), threads, 0, stream>>>(
        bytes, weights, static_cast<std::uint32_t>(packs), static_cast<std::uint32_t>(blocks.length / codes_at_once),
        static_cast<std::uint32_t>(size), nf4_table());
  else
    decode_each<code><<<blocks_of(divided_up(count, threads)), threads, 0, stream>>>(bytes, weights, count, blocks.length, size,
                                                                                    nf4_table());
  check_launch("decode_weights");
}

template <typename T>
class DecodeWeights final : public Kernel {
 public:
  explicit DecodeWeights(const WeightBlocks& blocks) : blocks_(blocks) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t count = out[0].shape.elements();
    if (count == 0) return;
    const auto decode = blocks_.code == Code::nf4 ? decode_on<Code::nf4, T> : decode_on<Code::e4m3, T>;
    decode(stream_of(queue), blocks_, in[0].as<std::uint8_t>(), out[0].as<T>(), count);
  }

 private:
  WeightBlocks blocks_;
};

Made make_decode_weights(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<DecodeWeights>(r.outputs[0].dtype, weight_blocks(r.attributes));
}

}  // namespace

CONSIST_KERNEL(decode_weights, make_decode_weights);

}  // namespace consist::cuda
