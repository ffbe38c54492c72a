// A precision that states dtypes and rewrites nothing.
#pragma once

#include <string>

#include "consist/precision.h"

namespace consist::test {

class PlainPrecision final : public Precision {
 public:
  explicit PlainPrecision(DTypes dtypes = {}) : dtypes_(dtypes) {}
  DTypes dtypes() const override { return dtypes_; }
  std::string describe() const override { return "test"; }
  std::string peak() const override { return "fp32"; }

 private:
  DTypes dtypes_;
};

/// As the precision bf16 does by default.
inline constexpr DTypes mixed_bf16{.parameter = DType::bf16, .gradient = DType::f32, .master = DType::f32};

}  // namespace consist::test
