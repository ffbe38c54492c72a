// Makers of kernels, one per op (docs/ops.md states their tensors), and what they share.
#pragma once

#include <memory>
#include <utility>

#include "consist/kernel.h"
#include "plugins/devices/cpu/kernel_library.h"
#include "plugins/devices/cpu/kernels/numbers.h"

namespace consist::cpu {

using Made = std::unique_ptr<Kernel>;

// Each returns null for dtypes that it does not know.
Made make_embedding(const KernelRequest& r, const KernelSettings& s);
Made make_embedding_grad(const KernelRequest& r, const KernelSettings& s);
Made make_linear(const KernelRequest& r, const KernelSettings& s);
Made make_linear_input_grad(const KernelRequest& r, const KernelSettings& s);
Made make_linear_weight_grad(const KernelRequest& r, const KernelSettings& s);
Made make_linear_bias_grad(const KernelRequest& r, const KernelSettings& s);
Made make_rms_norm(const KernelRequest& r, const KernelSettings& s);
Made make_rms_norm_grad(const KernelRequest& r, const KernelSettings& s);
Made make_rope(const KernelRequest& r, const KernelSettings& s);
Made make_rope_grad(const KernelRequest& r, const KernelSettings& s);
Made make_attention(const KernelRequest& r, const KernelSettings& s);
Made make_attention_grad(const KernelRequest& r, const KernelSettings& s);
Made make_swiglu(const KernelRequest& r, const KernelSettings& s);
Made make_swiglu_grad(const KernelRequest& r, const KernelSettings& s);
Made make_lm_head_loss(const KernelRequest& r, const KernelSettings& s);
Made make_lm_head_loss_grad(const KernelRequest& r, const KernelSettings& s);
Made make_add(const KernelRequest& r, const KernelSettings& s);
Made make_cast(const KernelRequest& r, const KernelSettings& s);
Made make_copy(const KernelRequest& r, const KernelSettings& s);
Made make_release(const KernelRequest& r, const KernelSettings& s);
Made make_sum_of_squares(const KernelRequest& r, const KernelSettings& s);
Made make_clip_coefficient(const KernelRequest& r, const KernelSettings& s);
Made make_adamw(const KernelRequest& r, const KernelSettings& s);

/// Input or output `index` of a launch, or an absent buffer.
inline const Buffer& at(std::span<const Buffer> buffers, std::size_t index) {
  static const Buffer absent{nullptr, DType::u8, Shape{0}};
  return index < buffers.size() ? buffers[index] : absent;
}

/// K<T> for the dtype of activations and parameters.
template <template <typename> class K, typename... Arguments>
Made by_dtype(DType type, Arguments&&... arguments) {
  if (type == DType::f32) return std::make_unique<K<float>>(std::forward<Arguments>(arguments)...);
  if (type == DType::bf16) return std::make_unique<K<bf16>>(std::forward<Arguments>(arguments)...);
  return nullptr;
}

/// K<T, G> for that and the dtype of gradients.
template <template <typename, typename> class K, typename... Arguments>
Made by_dtypes(DType type, DType gradient, Arguments&&... arguments) {
  if (type == DType::f32 && gradient == DType::f32)
    return std::make_unique<K<float, float>>(std::forward<Arguments>(arguments)...);
  if (type == DType::bf16 && gradient == DType::f32)
    return std::make_unique<K<bf16, float>>(std::forward<Arguments>(arguments)...);
  if (type == DType::bf16 && gradient == DType::bf16)
    return std::make_unique<K<bf16, bf16>>(std::forward<Arguments>(arguments)...);
  return nullptr;
}

/// Rows [first, last) of `count` that part `part` of `parts` works on.
struct Part {
  std::int64_t first, last;
};
inline Part part_of(std::int64_t count, int part, int parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

}  // namespace consist::cpu
