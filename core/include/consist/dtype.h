// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "consist/export.h"

namespace consist {

enum class DType : std::uint8_t {
  f32,   ///< IEEE 754 binary32
  bf16,  ///< bfloat16: the upper half of an f32, rounded to nearest, ties to even
  e4m3,  ///< 8-bit float, 4 exponent bits, no infinities (OCP FP8)
  e5m2,  ///< 8-bit float, 5 exponent bits (OCP FP8)
  i32,
  u8,    ///< bytes: workspaces
};

/// Bytes of one element.
constexpr std::size_t size_of(DType type) noexcept {
  switch (type) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::e4m3:
    case DType::e5m2:
    case DType::u8: return 1;
  }
  return 0;
}

constexpr bool is_float8(DType type) noexcept {
  return type == DType::e4m3 || type == DType::e5m2;
}

/// "f32", "bf16", ...: the names in program texts, archives and checkpoints.
CONSIST_API std::string_view name_of(DType type) noexcept;

/// The inverse of name_of; nothing for an unknown name.
CONSIST_API std::optional<DType> dtype_of(std::string_view name) noexcept;

}  // namespace consist
