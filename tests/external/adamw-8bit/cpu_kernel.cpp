// The kernel of adamw_8bit for the device "cpu", in fp32.
#include <consist/float8.h>
#include <consist/kernel_registry.h>
#include <consist/plugin.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace consist;

constexpr std::size_t stride = 7;

class Adamw8bit final : public Kernel {
 public:
  explicit Adamw8bit(const Attributes& a)
      : beta1_(static_cast<float>(a.real("beta1"))),
        beta2_(static_cast<float>(a.real("beta2"))),
        epsilon_(static_cast<float>(a.real("epsilon"))),
        decay_(static_cast<float>(a.real("weight_decay"))),
        block_(a.integer("block")) {}
  std::int64_t workspace_bytes() const override { return 8 * block_; }

  void launch(std::span<const Buffer> in, std::span<const Buffer>, void* workspace, NativeQueue) override {
    if (*in[1].as<float>() < 0) return;  // a step that changes nothing
    for (std::size_t p = 2; p < in.size(); p += stride) {
      const std::int64_t blocks = in[p + 5].shape.elements();
      for (std::int64_t b = 0; b < blocks; ++b) update(in, p, b, static_cast<float*>(workspace));
    }
  }

 private:
  void update(std::span<const Buffer> in, std::size_t p, std::int64_t b, float* m) const {
    float *const root = m + block_, *const weight = in[p].as<float>() + b * block_;
    const auto *scalars = in[0].as<float>(), *gradient = in[p + 1].as<float>() + b * block_;
    float* const master = in[p + 2].absent() ? weight : in[p + 2].as<float>() + b * block_;
    const float clip = *in[1].as<float>();
    load(in, p, 3, b, m);
    load(in, p, 4, b, root);
    for (std::int64_t i = 0; i < block_; ++i) {
      const float g = clip * gradient[i];
      m[i] = beta1_ * m[i] + (1 - beta1_) * g;
      root[i] = std::sqrt(beta2_ * root[i] * root[i] + (1 - beta2_) * g * g);
      const float w =
          master[i] * (1 - scalars[0] * decay_) - scalars[0] / scalars[1] * m[i] / (root[i] / std::sqrt(scalars[2]) + epsilon_);
      weight[i] = master[i] = w;
    }
    store(in, p, 3, b, m);
    store(in, p, 4, b, root);
  }
  /// State `k` of the parameter, whose scale is that two behind it.
  void load(std::span<const Buffer> in, std::size_t p, std::size_t k, std::int64_t b, float* values) const {
    const auto* codes = in[p + k].as<std::uint8_t>() + b * block_;
    const float scale = in[p + k + 2].as<float>()[b];
    for (std::int64_t i = 0; i < block_; ++i) values[i] = scale * from_float8<e4m3_format>(codes[i]);
  }
  void store(std::span<const Buffer> in, std::size_t p, std::size_t k, std::int64_t b, const float* values) const {
    float largest = 1e-30F;
    for (std::int64_t i = 0; i < block_; ++i) largest = std::max(largest, std::abs(values[i]));
    const float scale = largest / 448;
    in[p + k + 2].as<float>()[b] = scale;
    for (std::int64_t i = 0; i < block_; ++i)
      in[p + k].as<std::uint8_t>()[b * block_ + i] = to_float8<e4m3_format>(values[i] / scale);
  }

  float beta1_, beta2_, epsilon_, decay_;
  std::int64_t block_;
};

class CpuKernels final : public KernelSet {
 public:
  explicit CpuKernels(const Options&) {}
  std::vector<KernelKey> keys() const override { return {{"cpu", "adamw_8bit", {DType::f32}}}; }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    for (std::size_t i = 0; i < request.inputs.size(); ++i) {
      const bool is_moment = i >= 2 && ((i - 2) % stride == 3 || (i - 2) % stride == 4);
      if (!request.inputs[i].absent() && !is_moment && request.inputs[i].dtype != DType::f32) return nullptr;
    }
    return std::make_unique<Adamw8bit>(request.attributes);
  }
  std::vector<KernelExample> examples() const override {
    const TensorType scalar{DType::f32, {}}, w{DType::f32, {3, 8}}, m{DType::e4m3, {3, 8}}, scale{DType::f32, {3, 2}};
    return {{"adamw_8bit",
             {TensorType{DType::f32, {4}}, scalar, w, w, std::nullopt, m, m, scale, scale},
             {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", 0.1}, {"block", std::int64_t{4}}}}};
  }
};

}  // namespace

CONSIST_PLUGIN(kernels, consist::KernelSet, CpuKernels, "adamw-8bit-op", "1.0.0", "the update of my-adamw-8bit, on cpu in fp32");
CONSIST_PLUGIN_NO_OPTIONS();
