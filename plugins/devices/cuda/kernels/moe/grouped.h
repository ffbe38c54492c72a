// Products of experts' rows: grouped_linear and its gradients. How many rows each expert has is known on the GPU alone, so grids
// have fixed sizes and blocks find their tiles from the counts.
#pragma once

#include <cstdint>
#include <span>

#include "plugins/devices/cuda/kernels/common/kernels.h"

namespace consist::cuda {

enum class GroupedProduct : std::uint8_t { forward, input_grad, weight_grad };

/// An expert's d = a b. forward: a = its rows of x [rows, k], b = wᵀ, w [n, k]. input_grad: a = its rows of dy [rows, k],
/// b = w [k, n]. weight_grad: d [m, n], a = its rows of dyᵀ, dy [rows, m], b = its rows of x [rows, n].
struct GroupedSizes {
  int experts = 0;
  std::int64_t rows = 0;  ///< of all experts and of padding, which lies at the end
  std::int64_t m = 0;     ///< weight_grad alone
  std::int64_t n = 0;
  std::int64_t k = 0;  ///< all but weight_grad
};

struct GroupedOperands {
  const Buffer *a, *b, *counts;
  bool adds;  ///< to what the output holds
};

inline GroupedOperands grouped_operands(GroupedProduct product, std::span<const Buffer> in) {
  if (product == GroupedProduct::weight_grad) return {&in[1], &in[0], &in[2], !at(in, 3).absent()};
  return {&in[0], &in[1], &in[2], false};
}

/// For every GPU. Null for dtypes that it does not know.
Made make_plain_product(GroupedProduct product, const GroupedSizes& sizes, DType type, DType made);

/// Advice for where the build has no code for the kernels of compute capability 9.0.
inline constexpr char plain_instead[] = "choose the slower kernel that every GPU has: --cuda.grouped-products plain";

/// bf16 for GPUs of compute capability 9.0; `type` is that of the result. Null if the sizes are none that its copies of tiles
/// can have, or there are too many experts. ERRORS: UnavailableError where this build has no code for such GPUs.
Made make_hopper_product(GroupedProduct product, const GroupedSizes& sizes, DType type, const KernelSettings& settings);

/// In 8-bit floats, forward and input_grad, whose b is w [n, experts, k] of the transposed weights: for every GPU that has them.
/// Inputs a, descale, b, descale, counts. Null for dtypes that it does not know.
Made make_plain_float8_product(GroupedProduct product, const GroupedSizes& sizes, const KernelRequest& r);

/// The same for GPUs of compute capability 9.0, with results in bf16; `rows` is the dtype of a. Without `fast`, sums of 128
/// products are added up in fp32. Null and ERRORS as make_hopper_product().
Made make_hopper_float8_product(GroupedProduct product, const GroupedSizes& sizes, DType rows, bool fast,
                                const KernelSettings& settings);

}  // namespace consist::cuda
