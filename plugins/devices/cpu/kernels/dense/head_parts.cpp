// split and concat: copies of the channels of each head's parts, and sums over heads.
#include "plugins/devices/common/head_parts.h"

#include <cstring>

#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

using kernels::PlacedPart;
using kernels::PlacedParts;

template <typename T>
void split_row(const PlacedParts& p, const PlacedPart& part, std::int64_t row) {
  const T* const from = reinterpret_cast<const T*>(p.whole) + row * p.whole_stride + part.first;
  T* const to = reinterpret_cast<T*>(part.data) + row * part.row_stride;
  if (!part.shared) {
    for (std::int64_t head = 0; head < p.heads; ++head)
      std::memcpy(to + head * part.head_stride, from + head * p.head_dim, static_cast<std::size_t>(part.width) * sizeof(T));
    return;
  }
  for (std::int64_t i = 0; i < part.width; ++i) {
    float sum = 0;
    for (std::int64_t head = 0; head < p.heads; ++head) sum += load(from[head * p.head_dim + i]);
    store(to[i], sum);
  }
}

template <typename T>
void concat_row(const PlacedParts& p, const PlacedPart& part, std::int64_t row) {
  T* const to = reinterpret_cast<T*>(p.whole) + row * p.whole_stride + part.first;
  const T* const from = part.data == nullptr ? nullptr : reinterpret_cast<const T*>(part.data) + row * part.row_stride;
  const auto bytes = static_cast<std::size_t>(part.width) * sizeof(T);
  for (std::int64_t head = 0; head < p.heads; ++head) {
    if (from == nullptr)
      std::memset(static_cast<void*>(to + head * p.head_dim), 0, bytes);
    else
      std::memcpy(to + head * p.head_dim, from + head * part.head_stride, bytes);
  }
}

template <typename T>
class Split final : public Kernel {
 public:
  explicit Split(const KernelRequest& r) : parts_(HeadParts::parse(r.attributes.string("parts"))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const PlacedParts p(parts_, in[0], out);
    parallel_for(p.rows, [=](std::int64_t row) {
      for (std::size_t k = 0; k < p.count; ++k) {
        if (p.parts[k].data != nullptr) split_row<T>(p, p.parts[k], row);
      }
    });
  }

 private:
  HeadParts parts_;
};

template <typename T>
class Concat final : public Kernel {
 public:
  explicit Concat(const KernelRequest& r) : parts_(HeadParts::parse(r.attributes.string("parts"))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const PlacedParts p(parts_, out[0], in);
    parallel_for(p.rows, [=](std::int64_t row) {
      for (std::size_t k = 0; k < p.count; ++k) concat_row<T>(p, p.parts[k], row);
    });
  }

 private:
  HeadParts parts_;
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

}  // namespace consist::cpu
