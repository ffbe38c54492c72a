// add and cast.
#include "plugins/devices/cpu/kernels/product.h"
#include "plugins/devices/cpu/kernels/parallel.h"

namespace consist::cpu {
namespace {

template <typename T>
class Add final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T *a = in[0].as<T>(), *b = in[1].as<T>();
    T* c = out[0].as<T>();  // = a
    const std::int64_t count = in[0].shape.elements();
    parallel_for_simd(count, [=](std::int64_t i) { store(c[i], load(a[i]) + load(b[i])); });
  }
};

class Cast final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    convert(in[0].data, in[0].dtype, out[0].data, out[0].dtype, in[0].shape.elements());
  }
};

bool is_float(DType type) { return type == DType::f32 || type == DType::bf16; }

}  // namespace

Made make_add(const KernelRequest& r, const KernelSettings&) { return by_dtype<Add>(r.inputs[0].dtype); }
Made make_cast(const KernelRequest& r, const KernelSettings&) {
  return is_float(r.inputs[0].dtype) && is_float(r.outputs[0].dtype) ? std::make_unique<Cast>() : nullptr;
}

}  // namespace consist::cpu
