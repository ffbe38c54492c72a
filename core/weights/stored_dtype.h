// The dtypes that tensors have in files.
#pragma once

#include <cstddef>
#include <string_view>

#include "consist/dtype.h"
#include "consist/export.h"

namespace consist {

/// The format's name of a dtype: "BF16".
CONSIST_API std::string_view stored_name_of(DType dtype) noexcept;

/// Format of elements in a safetensors file: as a program's dtype, or as IEEE 754 binary16, which no program computes in.
class StoredDType {
 public:
  constexpr StoredDType(DType dtype) noexcept : dtype_(dtype) {}  // NOLINT(google-explicit-constructor): each is a stored one
  static constexpr StoredDType float16() noexcept {
    StoredDType stored(DType::bf16);
    stored.is_float16_ = true;
    return stored;
  }

  constexpr bool is_float16() const noexcept { return is_float16_; }
  /// Bytes of an element.
  constexpr std::size_t bytes() const noexcept { return size_of(dtype_); }
  /// The format's name: "F16".
  std::string_view name() const noexcept { return is_float16_ ? "F16" : stored_name_of(dtype_); }
  constexpr bool operator==(const StoredDType&) const noexcept = default;

 private:
  DType dtype_;
  bool is_float16_ = false;  // of the width of `dtype_`
};

}  // namespace consist
