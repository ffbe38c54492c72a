// The tensors of rope_grad, as a launch finds them.
#pragma once

#include "plugins/devices/common/makers.h"

namespace consist::kernels {

/// Tensors of rope's gradient. Those after `dx` are absent (null) if heads are not normalised, `dw` also if the weight is frozen.
template <typename T, typename G>
struct RopeGradTensors {
  RopeGradTensors(std::span<const Buffer> in, std::span<const Buffer> out)
      : dy(in[0].as<T>()),
        table(in[1].as<float>()),
        dx(out[0].as<T>()),
        x(at(in, 2).as<T>()),
        rstd(at(in, 3).as<float>()),
        w(at(in, 4).as<T>()),
        dw(at(out, 1).as<G>()),
        add_dw(!at(in, 5).absent()) {}

  const T* dy;         // [tokens, heads, dim]
  const float* table;  // [sequence, dim]: cosines, then sines
  T* dx;               // [tokens, heads, dim]
  const T* x;          // [tokens, heads, dim]
  const float* rstd;   // [tokens, heads]
  const T* w;          // [dim]
  G* dw;               // [dim]
  bool add_dw;         // to what dw holds before
};

}  // namespace consist::kernels
