// Helpers that the kernel folders of devices share: how a kernel is registered for its op, and how its maker picks the types.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "consist/kernel.h"

/// Registers a device's kernel for `op`: make(request, settings) makes it, or returns null for dtypes that it does not know;
/// docs/ops.md states the tensors. Stands in the device's namespace (consist::cpu, consist::cuda). A second kernel for the same
/// op and device is an error of the link: "multiple definition of registered_<op>".
#define CONSIST_KERNEL(op, make)                                    \
  extern const kernels::Registered<KernelSettings> registered_##op; \
  const kernels::Registered<KernelSettings> registered_##op(#op, make)

namespace consist::kernels {

using Made = std::unique_ptr<Kernel>;

/// An op's kernel, one static object each (CONSIST_KERNEL). They are found by name, so that the order in which the files of a
/// device are linked does not matter. Hidden symbols: each library has a list of its own.
template <typename Settings>
class Registered {
 public:
  using Make = Made (*)(const KernelRequest&, const Settings&);

  Registered(std::string_view op, Make make) noexcept : op_(op), make_(make), next_(first_) { first_ = this; }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  /// The kernel for a request, or null.
  static Made make(const KernelRequest& request, const Settings& settings) {
    for (const Registered* kernel = first_; kernel != nullptr; kernel = kernel->next_) {
      if (kernel->op_ == request.op) return kernel->make_(request, settings);
    }
    return nullptr;
  }

 private:
  static inline const Registered* first_ = nullptr;  // set before any object is made: a constant
  std::string_view op_;
  Make make_;
  const Registered* next_;
};

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
