// add, scale, cast and copy.
#include <algorithm>
#include <cstring>

#include "plugins/devices/cpu/kernels/common/parallel.h"
#include "plugins/devices/cpu/kernels/dense/product.h"

namespace consist::cpu {
namespace {

template <typename T, typename Added>
class Add final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    for (std::size_t pair = 0; pair < out.size(); ++pair) {
      const T* a = in[2 * pair].as<T>();
      const Added* b = in[2 * pair + 1].as<Added>();
      T* c = out[pair].as<T>();  // = a
      const std::int64_t count = in[2 * pair].shape.elements();
      parallel_for_simd(count, [=](std::int64_t i) { store(c[i], load(a[i]) + load(b[i])); });
    }
  }
};

template <typename T>
class Scale final : public Kernel {
 public:
  explicit Scale(float factor) : factor_(factor) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const T* x = in[0].as<T>();
    T* y = out[0].as<T>();
    if (in[0].row_stride == 0 && out[0].row_stride == 0) {
      parallel_for_simd(in[0].shape.elements(), [=, factor = factor_](std::int64_t i) { store(y[i], factor * load(x[i])); });
      return;
    }
    const std::int64_t columns = in[0].shape.last(), from = in[0].leading_dimension(), to = out[0].leading_dimension();
    parallel_for(in[0].shape.rows(), [=, factor = factor_](std::int64_t row) {
      for (std::int64_t i = 0; i < columns; ++i) store(y[row * to + i], factor * load(x[row * from + i]));
    });
  }

 private:
  float factor_;
};

class Cast final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    convert(in[0].data, in[0].dtype, out[0].data, out[0].dtype, in[0].shape.elements());
  }
};

class Copy final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const char* from = in[0].as<char>();
    char* to = out[0].as<char>();
    if (in[0].row_stride != 0 || out[0].row_stride != 0) {  // rows of a strided view, or to such
      const auto size = static_cast<std::int64_t>(size_of(in[0].dtype));
      const std::int64_t from_row = in[0].leading_dimension() * size, to_row = out[0].leading_dimension() * size;
      const auto row_bytes = static_cast<std::size_t>(in[0].shape.last() * size);
      parallel_for(in[0].shape.rows(),
                   [=](std::int64_t row) { std::memcpy(to + row * to_row, from + row * from_row, row_bytes); });
      return;
    }
    const std::int64_t bytes = in[0].shape.elements() * static_cast<std::int64_t>(size_of(in[0].dtype));
    constexpr std::int64_t block = 1 << 20;
    parallel_for((bytes + block - 1) / block, [=](std::int64_t i) {
      std::memcpy(to + i * block, from + i * block, static_cast<std::size_t>(std::min(block, bytes - i * block)));
    });
  }
};

Made make_add(const KernelRequest& r, const KernelSettings&) {
  const auto types = kernels::added_dtypes(r);
  if (!types) return nullptr;
  if (types->first == DType::bf16) return std::make_unique<Add<bf16, bf16>>();
  if (types->second == DType::bf16) return std::make_unique<Add<float, bf16>>();
  return std::make_unique<Add<float, float>>();
}
Made make_scale(const KernelRequest& r, const KernelSettings&) {
  const auto factor = static_cast<float>(r.attributes.real("factor"));
  if (r.inputs[0].dtype == DType::bf16) return std::make_unique<Scale<bf16>>(factor);
  if (r.inputs[0].dtype == DType::f32) return std::make_unique<Scale<float>>(factor);
  return nullptr;
}
Made make_cast(const KernelRequest& r, const KernelSettings&) {
  return is_float(r.inputs[0].dtype) && is_float(r.outputs[0].dtype) ? std::make_unique<Cast>() : nullptr;
}

Made make_copy(const KernelRequest&, const KernelSettings&) {
  return std::make_unique<Copy>();
}

}  // namespace

CONSIST_KERNEL(add, make_add);
CONSIST_KERNEL(scale, make_scale);
CONSIST_KERNEL(cast, make_cast);
CONSIST_KERNEL(copy, make_copy);

}  // namespace consist::cpu
