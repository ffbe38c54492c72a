// swiglu and swiglu_grad: h = silu(gate) up. All but h and dh may be columns of wider tensors.
#include "plugins/devices/cpu/kernels/common/kernels.h"
#include "plugins/devices/cpu/kernels/common/parallel.h"

namespace consist::cpu {
namespace {

template <typename T>
class Swiglu final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T *gate = in[0].as<T>(), *up = in[1].as<T>();
    T* h = out[0].as<T>();
    const std::int64_t columns = in[0].shape.last(), gate_row = in[0].leading_dimension(), up_row = in[1].leading_dimension();
    parallel_for_elements(in[0].shape.rows(), columns, [=](std::int64_t row, std::int64_t i) {
      const float g = load(gate[row * gate_row + i]);
      store(h[row * columns + i], g * sigmoid(g) * load(up[row * up_row + i]));
    });
  }
};

template <typename T>
class SwigluGrad final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T *dh = in[0].as<T>(), *gate = in[1].as<T>(), *up = in[2].as<T>();
    T *dgate = out[0].as<T>(), *dup = out[1].as<T>();
    const std::int64_t columns = in[0].shape.last(), gate_row = in[1].leading_dimension(), up_row = in[2].leading_dimension(),
                       dgate_row = out[0].leading_dimension(), dup_row = out[1].leading_dimension();
    parallel_for_elements(in[0].shape.rows(), columns, [=](std::int64_t row, std::int64_t i) {
      const float g = load(gate[row * gate_row + i]), d = load(dh[row * columns + i]), s = sigmoid(g);
      const float u = load(up[row * up_row + i]);
      store(dgate[row * dgate_row + i], d * u * s * (1.0F + g * (1.0F - s)));
      store(dup[row * dup_row + i], d * g * s);
    });
  }
};

Made make_swiglu(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<Swiglu>(r.inputs[0].dtype);
}
Made make_swiglu_grad(const KernelRequest& r, const KernelSettings&) {
  return by_dtype<SwigluGrad>(r.inputs[0].dtype);
}

}  // namespace

CONSIST_KERNEL(swiglu, make_swiglu);
CONSIST_KERNEL(swiglu_grad, make_swiglu_grad);

}  // namespace consist::cpu
