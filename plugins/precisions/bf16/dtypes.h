// The dtypes of bf16 training, which fp8 shares: its options `gradients` and `states`.
#pragma once

#include <string>

#include "consist/dtype.h"
#include "consist/options.h"
#include "consist/precision.h"

namespace consist::bf16 {

inline constexpr OptionSpec gradients_option{"gradients", OptionKind::choice, "f32",
                                             "dtype in which gradients of parameters accumulate", "f32|bf16", "", "f32|bf16"};
inline constexpr OptionSpec states_option{"states", OptionKind::choice, "f32",
                                          "f32: fp32 master weights and moments; bf16: neither, with stochastic rounding",
                                          "f32|bf16", "", "f32|bf16"};

inline DTypes dtypes(const Options& options) {
  DTypes dtypes;
  dtypes.parameter = DType::bf16;
  dtypes.gradient = *dtype_of(options.text("gradients"));
  if (options.text("states") == "f32") {
    dtypes.master = DType::f32;
  } else {
    dtypes.moment = DType::bf16;
    dtypes.stochastic_rounding = true;
  }
  return dtypes;
}

/// "f32 gradients, f32 masters and moments"
inline std::string describe(const DTypes& dtypes) {
  return std::string(name_of(dtypes.gradient)) + " gradients, " +
         (dtypes.master ? "f32 masters and moments" : "bf16 moments and no masters (stochastic rounding)");
}

}  // namespace consist::bf16
