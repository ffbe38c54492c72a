// The quintic Newton-Schulz iteration of Muon (Jordan et al., 2024): x = a x + (b g + c g²) x with g = x xᵀ, begun at x over its
// Frobenius norm. The coefficients make small singular values grow fastest and leave all near 1, not at 1.
#pragma once

#include "consist/error.h"
#include "consist/kernel.h"

namespace consist::kernels {

inline constexpr float newton_schulz_a = 3.4445F, newton_schulz_b = -4.7750F, newton_schulz_c = 2.0315F;
inline constexpr float newton_schulz_least_norm = 1e-7F;  ///< a matrix of zeros stays one

/// The dtype of what an orthogonalize multiplies.
inline DType products_of(const KernelRequest& request) {
  const std::string name = request.attributes.string("products");
  const std::optional<DType> type = dtype_of(name);
  if (!type) throw ProgramError("op 'orthogonalize': attribute 'products' is '" + name + "', which is no dtype");
  return *type;
}

}  // namespace consist::kernels
