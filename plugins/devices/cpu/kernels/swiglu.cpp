// swiglu and swiglu_grad: h = silu(gate) up.
#include "plugins/devices/cpu/kernels/kernels.h"
#include "plugins/devices/cpu/kernels/parallel.h"

namespace consist::cpu {
namespace {

template <typename T>
class Swiglu final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T *gate = in[0].as<T>(), *up = in[1].as<T>();
    T* h = out[0].as<T>();
    const std::int64_t count = in[0].shape.elements();
    parallel_for_simd(count, [=](std::int64_t i) {
      const float g = load(gate[i]);
      store(h[i], g * sigmoid(g) * load(up[i]));
    });
  }
};

template <typename T>
class SwigluGrad final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T *dh = in[0].as<T>(), *gate = in[1].as<T>(), *up = in[2].as<T>();
    T *dgate = out[0].as<T>(), *dup = out[1].as<T>();
    const std::int64_t count = in[0].shape.elements();
    parallel_for_simd(count, [=](std::int64_t i) {
      const float g = load(gate[i]), d = load(dh[i]), s = sigmoid(g);
      store(dgate[i], d * load(up[i]) * s * (1.0F + g * (1.0F - s)));
      store(dup[i], d * g * s);
    });
  }
};

}  // namespace

Made make_swiglu(const KernelRequest& r, const KernelSettings&) { return by_dtype<Swiglu>(r.inputs[0].dtype); }
Made make_swiglu_grad(const KernelRequest& r, const KernelSettings&) { return by_dtype<SwigluGrad>(r.inputs[0].dtype); }

}  // namespace consist::cpu
