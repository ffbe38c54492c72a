// Products that Device::measure_matmul measures.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/error.h"

namespace consist {

/// A linear of these sizes through the same kernel as training: y [1, m, n] = x [1, m, k] w [n, k]ᵀ, of 8-bit floats in bf16. The
/// device brings the memory.
class MeasuredMatmul {
 public:
  /// Throws UnavailableError where `device`, called `name`, has no kernel for it.
  MeasuredMatmul(Device& device, const std::string& name, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k)
      : fp8_(dtype == DType::e4m3 || dtype == DType::e5m2),
        in_{{nullptr, dtype, Shape{1, m, k}}, {nullptr, dtype, Shape{n, k}}},
        out_{{nullptr, fp8_ ? DType::bf16 : dtype, Shape{1, m, n}}} {
    const Buffer descale{nullptr, DType::f32, {}};
    if (fp8_) in_ = {in_[0], descale, in_[1], descale};
    Attributes attributes;
    if (fp8_) attributes = {{"dtype", std::string(name_of(DType::bf16))}, {"fast_accumulation", std::int64_t{1}}};
    kernel_ = device.make_kernel({fp8_ ? "fp8_linear" : "linear", in_, out_, attributes});
    if (!kernel_) throw UnavailableError("the " + name + " device multiplies no " + std::string(name_of(dtype)) + " matrices");
  }

  std::int64_t x_bytes() const { return bytes(in_[0]); }
  std::int64_t w_bytes() const { return bytes(in_[fp8_ ? 2 : 1]); }
  std::int64_t y_bytes() const { return bytes(out_[0]); }
  std::int64_t workspace_bytes() const { return kernel_->workspace_bytes(); }

  /// Before the first launch(). 8-bit floats in x and w must be numbers below 2.
  void use(void* x, void* w, void* y, void* workspace) {
    in_[0].data = x;
    in_[fp8_ ? 2 : 1].data = w;
    if (fp8_) in_[1].data = in_[3].data = x;  // four such numbers are a finite float too
    out_[0].data = y;
    workspace_ = workspace;
  }
  void launch(NativeQueue queue) { kernel_->launch(in_, out_, workspace_, queue); }

  /// Operations per second, if one product takes that long.
  double rate(double seconds) const {
    const double products = static_cast<double>(out_[0].shape.elements()) * static_cast<double>(in_[0].shape.last());
    return 2.0 * products / seconds;
  }

 private:
  static std::int64_t bytes(const Buffer& buffer) {
    return buffer.shape.elements() * static_cast<std::int64_t>(size_of(buffer.dtype));
  }

  bool fp8_;
  std::vector<Buffer> in_, out_;
  void* workspace_ = nullptr;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace consist
