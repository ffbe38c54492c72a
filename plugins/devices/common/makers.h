// Helpers that the kernel folders of devices share: the list of ops, and how a maker picks its kernel's types.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "consist/kernel.h"

/// apply(op) for every op that all devices have kernels for; docs/ops.md states their tensors. A device declares
/// make_<op>(const KernelRequest&, const KernelSettings&) for each, which returns null for dtypes that it does not know. One op a
/// line, so that two changes seldom meet.
// clang-format off
#define CONSIST_KERNEL_OPS(apply) \
  apply(embedding) \
  apply(embedding_grad) \
  apply(linear) \
  apply(linear_input_grad) \
  apply(linear_weight_grad) \
  apply(linear_bias_grad) \
  apply(packed_linear) \
  apply(packed_linear_input_grad) \
  apply(packed_linear_weight_grad) \
  apply(amax) \
  apply(quantize) \
  apply(rank_values) \
  apply(quantize_part) \
  apply(transpose) \
  apply(record_amaxes) \
  apply(fp8_linear) \
  apply(fp8_linear_input_grad) \
  apply(fp8_linear_weight_grad) \
  apply(rms_norm) \
  apply(rms_norm_amax) \
  apply(rms_norm_grad) \
  apply(rope) \
  apply(rope_grad) \
  apply(attention) \
  apply(attention_grad) \
  apply(rows_at) \
  apply(write_rows) \
  apply(attention_part) \
  apply(attention_part_grad) \
  apply(swiglu) \
  apply(swiglu_amax) \
  apply(swiglu_grad) \
  apply(swiglu_grad_amax) \
  apply(moe_route) \
  apply(moe_route_grad) \
  apply(count_choices) \
  apply(balance_loss) \
  apply(balance_loss_grad) \
  apply(moe_send) \
  apply(moe_send_grad) \
  apply(moe_return) \
  apply(moe_return_grad) \
  apply(moe_dispatch) \
  apply(moe_dispatch_grad) \
  apply(moe_combine) \
  apply(moe_combine_grad) \
  apply(grouped_linear) \
  apply(grouped_linear_input_grad) \
  apply(grouped_linear_weight_grad) \
  apply(moe_swiglu) \
  apply(moe_swiglu_grad) \
  apply(lm_head_loss) \
  apply(lm_head_loss_grad) \
  apply(vocabulary_logits) \
  apply(vocabulary_loss) \
  apply(vocabulary_loss_grad) \
  apply(masked_targets) \
  apply(count_targets) \
  apply(per_target) \
  apply(repeat_heads) \
  apply(repeat_heads_grad) \
  apply(slice) \
  apply(add) \
  apply(cast) \
  apply(copy) \
  apply(sum_of_squares) \
  apply(clip_coefficient) \
  apply(hold_update) \
  apply(adamw) \
  apply(sgd) \
  apply(lion) \
  apply(muon_momentum) \
  apply(orthogonalize) \
  apply(muon)
// clang-format on

#define CONSIST_DECLARE_MAKER(op) Made make_##op(const KernelRequest& r, const KernelSettings& s);
#define CONSIST_MAKER_ENTRY(op) {#op, make_##op},

namespace consist::kernels {

using Made = std::unique_ptr<Kernel>;

/// A row of a device's table of ops.
template <typename Settings>
struct Maker {
  std::string_view op;
  Made (*make)(const KernelRequest&, const Settings&);
};

/// The kernel for a request, or null.
template <typename Settings>
Made make_from(std::span<const Maker<Settings>> table, const KernelRequest& request, const Settings& settings) {
  for (const Maker<Settings>& maker : table) {
    if (maker.op == request.op) return maker.make(request, settings);
  }
  return nullptr;
}

/// Input or output `index` of a launch, or an absent buffer.
inline const Buffer& at(std::span<const Buffer> buffers, std::size_t index) {
  static const Buffer absent{nullptr, DType::u8, Shape{0}};
  return index < buffers.size() ? buffers[index] : absent;
}

inline bool is_float(DType type) noexcept {
  return type == DType::f32 || type == DType::bf16;
}

/// K<T> for the dtype of activations and parameters; `Bf16` is the device's own type of that.
template <template <typename> class K, typename Bf16, typename... Arguments>
Made for_dtype(DType type, Arguments&&... arguments) {
  if (type == DType::f32) return std::make_unique<K<float>>(std::forward<Arguments>(arguments)...);
  if (type == DType::bf16) return std::make_unique<K<Bf16>>(std::forward<Arguments>(arguments)...);
  return nullptr;
}

/// K<T, G> for that and the dtype of gradients.
template <template <typename, typename> class K, typename Bf16, typename... Arguments>
Made for_dtypes(DType type, DType gradient, Arguments&&... arguments) {
  if (type == DType::f32 && gradient == DType::f32)
    return std::make_unique<K<float, float>>(std::forward<Arguments>(arguments)...);
  if (type == DType::bf16 && gradient == DType::f32)
    return std::make_unique<K<Bf16, float>>(std::forward<Arguments>(arguments)...);
  if (type == DType::bf16 && gradient == DType::bf16)
    return std::make_unique<K<Bf16, Bf16>>(std::forward<Arguments>(arguments)...);
  return nullptr;
}

/// The dtype of an optional output, which may be absent: then any that a kernel knows beside `type`.
inline DType dtype_or_f32(std::span<const Buffer> outputs, std::size_t index) {
  return at(outputs, index).absent() ? DType::f32 : outputs[index].dtype;
}

/// K<T, S> for any two of f32 and bf16.
template <template <typename, typename> class K, typename Bf16, typename... Arguments>
Made for_any_floats(DType first, DType second, Arguments&&... arguments) {
  if (first == DType::f32 && second == DType::bf16)
    return std::make_unique<K<float, Bf16>>(std::forward<Arguments>(arguments)...);
  return for_dtypes<K, Bf16>(first, second, std::forward<Arguments>(arguments)...);
}

/// The dtypes of an add's sums and of what is added to them, which are those of all its pairs; none if a device has no kernel.
inline std::optional<std::pair<DType, DType>> added_dtypes(const KernelRequest& r) {
  const DType sum = r.inputs[0].dtype, added = r.inputs[1].dtype;
  for (std::size_t i = 0; i < r.inputs.size(); i += 2) {
    if (r.inputs[i].dtype != sum || r.inputs[i + 1].dtype != added) return std::nullopt;
  }
  if (!is_float(sum) || !is_float(added) || (sum == DType::bf16 && added != DType::bf16)) return std::nullopt;
  return std::pair{sum, added};
}

/// True if the dtypes of an update of parameters with `states` states each fit each other: gradients no wider than parameters
/// allow, f32 masters, states alike.
inline bool has_update_dtypes(const KernelRequest& r, std::size_t states) {
  for (std::size_t i = 2; i + 2 + states < r.inputs.size(); i += 3 + states) {
    const DType p = r.inputs[i].dtype, g = r.inputs[i + 1].dtype;
    if (!is_float(p) || !is_float(g) || (p == DType::f32 && g != DType::f32)) return false;
    if (!r.inputs[i + 2].absent() && r.inputs[i + 2].dtype != DType::f32) return false;
    for (std::size_t state = i + 3; state < i + 3 + states; ++state) {
      if (r.inputs[state].absent()) continue;
      if (!is_float(r.inputs[state].dtype) || r.inputs[state].dtype != r.inputs[i + 3].dtype) return false;
    }
  }
  return true;
}

}  // namespace consist::kernels
