// fp8_grouped_linear and its gradient of rows: what a GPU computes, up to the order of fp32 sums. Codes are widened, those of an
// expert's weight once for all of its rows.
#include <algorithm>
#include <cstring>

#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/product.h"
#include "plugins/devices/cpu/kernels/moe/grouped_tiles.h"

namespace consist::cpu {
namespace {

/// Lines of codes, `pitch` apart.
struct Codes {
  const void* first;
  DType dtype;
  std::int64_t lines, columns, pitch;
};

template <typename F, typename To>
void widen(const Codes& codes, To* to) {
  parallel_for(codes.lines, [=](std::int64_t line) {
    const F* const from = static_cast<const F*>(codes.first) + line * codes.pitch;
    To* const numbers = to + line * codes.columns;
#pragma omp simd
    for (std::int64_t i = 0; i < codes.columns; ++i) store(numbers[i], load(from[i]));
  });
}

/// As numbers one behind the other, exact in bf16 and f32.
template <typename To>
void widen(const Codes& codes, void* to) {
  if (codes.dtype == DType::e4m3)
    widen<e4m3>(codes, static_cast<To*>(to));
  else
    widen<e5m2>(codes, static_cast<To*>(to));
}

/// y [1, rows, n] = descales · rows [1, rows, k] of each expert times its weight, which is n lines of k: w [experts, n, k], or of
/// the transposed one [n, experts, k].
class Fp8GroupedProduct final : public Kernel {
 public:
  Fp8GroupedProduct(const KernelRequest& r, const KernelSettings& s, bool transposed)
      : experts_(r.inputs[4].shape[0]),
        size_(tile_rows(r.inputs[0].shape[1], experts_)),
        n_(r.outputs[0].shape.last()),
        k_(r.inputs[0].shape.last()),
        apart_(transposed ? k_ : n_ * k_),
        pitch_(transposed ? experts_ * k_ : k_),
        wide_(s.native_bf16 ? DType::bf16 : DType::f32),
        product_(size_, n_, k_, {wide_}, {wide_, true}, DType::f32, false, s) {}

  std::int64_t workspace_bytes() const override {
    return rows_bytes() + weight_bytes() + padded(size_ * n_ * 4) + product_.workspace_bytes();
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    char* const rows = static_cast<char*>(workspace);
    char* const weight = rows + rows_bytes();
    char* const sum = weight + weight_bytes();
    char* const scratch = sum + padded(size_ * n_ * 4);
    const float scale = *in[1].as<float>() * *in[3].as<float>();
    const std::int64_t used = each_tile(in[4].as<std::int32_t>(), experts_, size_, [&](const Tile& tile) {
      if (tile.first) decode({in[2].as<char>() + tile.expert * apart_, in[2].dtype, n_, k_, pitch_}, weight);
      decode({in[0].as<char>() + tile.row * k_, in[0].dtype, tile.rows, k_, k_}, rows);
      product_.run(rows, weight, sum, scratch);  // of whole tiles, of which a part may not be stored
      finish(reinterpret_cast<const float*>(sum), scale, tile, out[0]);
    });
    const std::int64_t row = n_ * static_cast<std::int64_t>(size_of(out[0].dtype));
    std::memset(out[0].as<char>() + used * row, 0, static_cast<std::size_t>((out[0].shape[1] - used) * row));
  }

 private:
  std::int64_t wide_bytes() const { return static_cast<std::int64_t>(size_of(wide_)); }
  std::int64_t rows_bytes() const { return padded(size_ * k_ * wide_bytes()); }
  std::int64_t weight_bytes() const { return padded(n_ * k_ * wide_bytes()); }

  void decode(const Codes& codes, void* to) const {
    if (wide_ == DType::bf16)
      widen<bf16>(codes, to);
    else
      widen<float>(codes, to);
  }
  void finish(const float* sum, float scale, const Tile& tile, const Buffer& out) const {
    const auto store_to = [=, this](auto* y) {
      parallel_for_simd(tile.rows * n_, [=](std::int64_t i) { store(y[i], scale * sum[i]); });
    };
    if (out.dtype == DType::f32)
      store_to(out.as<float>() + tile.row * n_);
    else
      store_to(out.as<bf16>() + tile.row * n_);
  }

  std::int64_t experts_, size_, n_, k_;
  std::int64_t apart_, pitch_;  // codes from one expert's weight to the next, and from line to line of it
  DType wide_;
  Product product_;
};

Made make_fp8_grouped_linear(const KernelRequest& r, const KernelSettings& s) {
  return is_float(r.outputs[0].dtype) ? std::make_unique<Fp8GroupedProduct>(r, s, false) : nullptr;
}
Made make_fp8_grouped_linear_input_grad(const KernelRequest& r, const KernelSettings& s) {
  return is_float(r.outputs[0].dtype) ? std::make_unique<Fp8GroupedProduct>(r, s, true) : nullptr;
}

}  // namespace

CONSIST_KERNEL(fp8_grouped_linear, make_fp8_grouped_linear);
CONSIST_KERNEL(fp8_grouped_linear_input_grad, make_fp8_grouped_linear_input_grad);

}  // namespace consist::cpu
