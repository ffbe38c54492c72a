// Kernels around quantize_part: the ranks' scalars side by side, and the transposed copy of what was gathered.
#include <algorithm>

#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

/// Inputs n scalars, output this rank's row of [ranks, n].
class RankValues final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    std::transform(in.begin(), in.end(), out[0].as<float>(), [](const Buffer& value) { return *value.as<float>(); });
  }
};

/// Transposes bytes: x [rows, columns] → y [columns, rows].
class Transpose final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const auto* x = in[0].as<std::uint8_t>();
    auto* y = out[0].as<std::uint8_t>();
    const std::int64_t rows = in[0].shape.rows(), columns = in[0].shape.last();
    constexpr std::int64_t tile = 32;  // bytes of a row, so that both sides stay in the first cache
    parallel_for((columns + tile - 1) / tile, [=](std::int64_t index) {
      const std::int64_t first = index * tile, last = std::min(first + tile, columns);
      for (std::int64_t row0 = 0; row0 < rows; row0 += tile) {
        const std::int64_t row1 = std::min(row0 + tile, rows);
        for (std::int64_t column = first; column < last; ++column) {
          for (std::int64_t row = row0; row < row1; ++row) y[column * rows + row] = x[row * columns + column];
        }
      }
    });
  }
};

Made make_rank_values(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<RankValues>();
}
Made make_transpose(const KernelRequest& r, const KernelSettings&) {
  return size_of(r.inputs[0].dtype) == 1 ? std::make_unique<Transpose>() : nullptr;
}

}  // namespace

CONSIST_KERNEL(rank_values, make_rank_values);
CONSIST_KERNEL(transpose, make_transpose);

}  // namespace consist::cpu
