// The tensors of rms_norm and rms_norm_grad, as a launch finds them. Rows are tokens of c channels.
#pragma once

#include "plugins/devices/common/makers.h"

namespace consist::kernels {

template <typename T>
struct RmsNormTensors {
  RmsNormTensors(std::span<const Buffer> in, std::span<const Buffer> out)
      : x(in[0].as<T>()),
        residual(in[1].as<T>()),
        w(in[2].as<T>()),
        y(out[0].as<T>()),
        sum(out[1].as<T>()),
        rstd(out[2].as<float>()),
        rows(in[0].shape.rows()),
        c(in[0].shape.last()) {}

  const T* x;         // [rows, c]
  const T* residual;  // [rows, c] or null
  const T* w;         // [c]
  T* y;               // [rows, c]
  T* sum;             // [rows, c] or null
  float* rstd;        // [rows]
  std::int64_t rows, c;
};

template <typename T, typename G>
struct RmsNormGradTensors {
  RmsNormGradTensors(std::span<const Buffer> in, std::span<const Buffer> out)
      : dy(in[0].as<T>()),
        x(in[1].as<T>()),
        rstd(in[2].as<float>()),
        w(in[3].as<T>()),
        added(at(in, 4).as<T>()),
        add_dw(!at(in, 5).absent()),
        dx(out[0].as<T>()),
        dw(at(out, 1).as<G>()),
        rows(in[1].shape.rows()),
        c(in[1].shape.last()) {}

  const T* dy;        // [rows, c]
  const T* x;         // [rows, c]
  const float* rstd;  // [rows]
  const T* w;         // [c]
  const T* added;     // [rows, c], to dx: dx itself, apart from it or null
  bool add_dw;        // to what dw holds before
  T* dx;              // [rows, c]
  G* dw;              // [c], null where the weight is frozen
  std::int64_t rows, c;
};

}  // namespace consist::kernels
