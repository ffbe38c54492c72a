// Kernels of my_lion and my_orthogonal for the device "cpu", in fp32.
#include <consist/kernel_registry.h>
#include <consist/plugin.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace consist;

/// Chen et al., 2023, arXiv 2302.06675, algorithm 2.
class MyLion final : public Kernel {
 public:
  explicit MyLion(const Attributes& a)
      : beta1_(static_cast<float>(a.real("beta1"))),
        beta2_(static_cast<float>(a.real("beta2"))),
        decay_(static_cast<float>(a.real("weight_decay"))) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer>, void*, NativeQueue) override {
    const float rate = *in[0].as<float>(), clip = *in[1].as<float>();
    for (std::size_t p = 2; p < in.size(); p += 4) {
      auto *weight = in[p].as<float>(), *momentum = in[p + 3].as<float>();
      const auto* gradient = in[p + 1].as<float>();
      const std::int64_t count = in[p].shape.elements();
      for (std::int64_t i = 0; i < count; ++i) {
        const float g = gradient[i] * clip, direction = std::lerp(g, momentum[i], beta1_);
        const auto sign = static_cast<float>((direction > 0) - (direction < 0));
        weight[i] -= rate * (sign + decay_ * weight[i]);
        momentum[i] = std::lerp(g, momentum[i], beta2_);
      }
    }
  }

 private:
  float beta1_, beta2_, decay_;
};

/// x over its Frobenius norm, then x := a x + (b x xᵀ + c (x xᵀ)²) x with the constants of Jordan et al., 2024. Of a matrix with
/// more rows than columns the transpose, whose x xᵀ is the smaller one.
class MyOrthogonal final : public Kernel {
 public:
  MyOrthogonal(const Shape& shape, std::int64_t iterations)
      : rows_(shape[0]),
        columns_(shape[1]),
        less_(std::min(rows_, columns_)),
        more_(std::max(rows_, columns_)),
        iterations_(iterations) {}
  std::int64_t workspace_bytes() const override { return 4 * (2 * less_ * more_ + 2 * less_ * less_); }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue) override {
    auto *x = static_cast<float*>(workspace), *next = x + less_ * more_, *gram = next + less_ * more_,
         *polynomial = gram + less_ * less_;
    double squares = 0;
    for (std::int64_t i = 0; i < rows_ * columns_; ++i)
      squares += static_cast<double>(in[0].as<float>()[i]) * in[0].as<float>()[i];
    const auto scale = static_cast<float>(1 / std::max(std::sqrt(squares), 1e-7));
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < columns_; ++c) x[at(r, c)] = in[0].as<float>()[r * columns_ + c] * scale;
    }
    for (std::int64_t i = 0; i < iterations_; ++i) {
      for (std::int64_t r = 0; r < less_; ++r) {
        for (std::int64_t c = 0; c < less_; ++c) {
          float sum = 0;
          for (std::int64_t k = 0; k < more_; ++k) sum += x[r * more_ + k] * x[c * more_ + k];
          gram[r * less_ + c] = sum;
        }
      }
      std::transform(gram, gram + less_ * less_, polynomial, [](float g) { return -4.7750F * g; });
      add_product(gram, 2.0315F, gram, polynomial, less_);
      std::transform(x, x + less_ * more_, next, [](float value) { return 3.4445F * value; });
      add_product(polynomial, 1, x, next, more_);
      std::swap(x, next);
    }
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < columns_; ++c) out[0].as<float>()[r * columns_ + c] = x[at(r, c)];
    }
  }

 private:
  /// Where an element lies in the matrix that has no more rows than columns.
  std::int64_t at(std::int64_t row, std::int64_t column) const {
    return rows_ <= columns_ ? row * more_ + column : column * more_ + row;
  }
  /// y += factor a b; a [less, less], b and y [less, columns].
  void add_product(const float* a, float factor, const float* b, float* y, std::int64_t columns) const {
    for (std::int64_t r = 0; r < less_; ++r) {
      for (std::int64_t k = 0; k < less_; ++k) {
        const float by = factor * a[r * less_ + k];
        for (std::int64_t c = 0; c < columns; ++c) y[r * columns + c] += by * b[k * columns + c];
      }
    }
  }

  std::int64_t rows_, columns_, less_, more_, iterations_;
};

class CpuKernels final : public KernelSet {
 public:
  explicit CpuKernels(const Options&) {}
  std::vector<KernelKey> keys() const override {
    return {{"cpu", "my_lion", {DType::f32}}, {"cpu", "my_orthogonal", {DType::f32}}};
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    if (request.op == "my_orthogonal")
      return std::make_unique<MyOrthogonal>(request.inputs[0].shape, request.attributes.integer("iterations"));
    for (const Buffer& buffer : request.inputs) {
      if (!buffer.absent() && buffer.dtype != DType::f32) return nullptr;
    }
    return std::make_unique<MyLion>(request.attributes);
  }
  std::vector<KernelExample> examples() const override {
    const TensorType scalar{DType::f32, {}}, w{DType::f32, {3, 5}};
    return {{"my_lion",
             {TensorType{DType::f32, {1}}, scalar, w, w, std::nullopt, w},
             {{"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", 0.1}}},
            {"my_orthogonal", {TensorType{DType::f32, {6, 4}}}, {{"iterations", std::int64_t{5}}}}};
  }
};

}  // namespace

CONSIST_PLUGIN(kernels, consist::KernelSet, CpuKernels, "lion-and-muon", "1.0.0",
               "updates of my-lion and my-muon, on cpu in fp32");
CONSIST_PLUGIN_NO_OPTIONS();
