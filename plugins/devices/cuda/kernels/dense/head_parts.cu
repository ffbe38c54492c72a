// split and concat: a copy for each part, in words as wide as its place allows, or a sum over heads.
#include "plugins/devices/common/head_parts.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/numbers.cuh"

namespace consist::cuda {
namespace {

using kernels::PlacedPart;
using kernels::PlacedParts;

/// In words or elements: where (row, head, 0) lies is row * row + head * head.
struct Step {
  std::int64_t row, head;
};

/// A null `from` is zeros.
template <typename Word>
__global__ void __launch_bounds__(threads) copy_part(const Word* from, Step from_step, Word* to, Step to_step, std::int64_t count,
                                                     std::int64_t heads, std::int64_t width) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t column = i % width, head = i / width % heads, row = i / width / heads;
  to[row * to_step.row + head * to_step.head + column] =
      from == nullptr ? Word{} : from[row * from_step.row + head * from_step.head + column];
}

template <typename T>
__global__ void __launch_bounds__(threads)
    add_heads(const T* __restrict__ from, Step from_step, T* __restrict__ to, std::int64_t to_row, std::int64_t count,
              std::int64_t heads, std::int64_t width) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t column = i % width, row = i / width;
  float sum = 0;
  for (std::int64_t head = 0; head < heads; ++head) sum += number(from[row * from_step.row + head * from_step.head + column]);
  to[row * to_row + column] = rounded<T>(sum);
}

/// Bytes.
struct Copy {
  const char* from;
  char* to;
  Step from_step, to_step;
  std::int64_t rows, heads, width;
};

template <typename Word>
bool copied(const Copy& c, cudaStream_t stream) {
  constexpr std::int64_t size = sizeof(Word);
  const std::int64_t places[] = {static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(c.from)),
                                 static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(c.to)),
                                 c.from_step.row,
                                 c.from_step.head,
                                 c.to_step.row,
                                 c.to_step.head,
                                 c.width};
  for (const std::int64_t place : places) {
    if (place % size != 0) return false;
  }
  const std::int64_t count = c.rows * c.heads * c.width / size;
  copy_part<Word><<<blocks_of(divided_up(count, threads)), threads, 0, stream>>>(
      reinterpret_cast<const Word*>(c.from), {c.from_step.row / size, c.from_step.head / size}, reinterpret_cast<Word*>(c.to),
      {c.to_step.row / size, c.to_step.head / size}, count, c.heads, c.width / size);
  check_launch("a part of heads");
  return true;
}

void copy(const Copy& c, cudaStream_t stream) {
  if (c.rows * c.heads * c.width == 0) return;
  if (copied<uint4>(c, stream) || copied<uint2>(c, stream) || copied<std::uint32_t>(c, stream)) return;
  copied<std::uint16_t>(c, stream);
}

template <typename T>
class HeadPartsKernel : public Kernel {
 public:
  explicit HeadPartsKernel(const KernelRequest& r) : parts_(HeadParts::parse(r.attributes.string("parts"))) {}

 protected:
  static Step whole_step(const PlacedParts& p) { return {p.whole_stride * size, p.head_dim * size}; }
  static Step part_step(const PlacedPart& part) { return {part.row_stride * size, part.head_stride * size}; }

  static constexpr std::int64_t size = sizeof(T);
  HeadParts parts_;
};

template <typename T>
class Split final : public HeadPartsKernel<T> {
 public:
  using HeadPartsKernel<T>::HeadPartsKernel;
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const PlacedParts p(this->parts_, in[0], out);
    for (std::size_t k = 0; k < p.count; ++k) {
      const PlacedPart& part = p.parts[k];
      const char* const from = p.whole + part.first * this->size;
      if (part.data == nullptr) continue;
      if (!part.shared) {
        copy({from, part.data, this->whole_step(p), this->part_step(part), p.rows, p.heads, part.width * this->size},
             stream_of(queue));
        continue;
      }
      const std::int64_t count = p.rows * part.width;
      if (count == 0) continue;
      add_heads<T><<<blocks_of(divided_up(count, threads)), threads, 0, stream_of(queue)>>>(
          reinterpret_cast<const T*>(from), {p.whole_stride, p.head_dim}, reinterpret_cast<T*>(part.data), part.row_stride, count,
          p.heads, part.width);
      check_launch("split");
    }
  }
};

template <typename T>
class Concat final : public HeadPartsKernel<T> {
 public:
  using HeadPartsKernel<T>::HeadPartsKernel;
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const PlacedParts p(this->parts_, out[0], in);
    for (std::size_t k = 0; k < p.count; ++k) {
      const PlacedPart& part = p.parts[k];
      copy({part.data, p.whole + part.first * this->size, part.data == nullptr ? Step{0, 0} : this->part_step(part),
            this->whole_step(p), p.rows, p.heads, part.width * this->size},
           stream_of(queue));
    }
  }
};

Made make_split(const KernelRequest& r, const KernelSettings& /*s*/) {
  return by_dtype<Split>(r.inputs[0].dtype, r);
}
Made make_concat(const KernelRequest& r, const KernelSettings& /*s*/) {
  return by_dtype<Concat>(r.outputs[0].dtype, r);
}

}  // namespace

CONSIST_KERNEL(split, make_split);
CONSIST_KERNEL(concat, make_concat);

}  // namespace consist::cuda
