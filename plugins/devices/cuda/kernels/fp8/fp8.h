// Helpers that kernels of 8-bit floats share: which GPUs have tensor cores for them, and what ends a run.
#pragma once

#include <string>

#include "consist/error.h"
#include "consist/float8_scaling.h"
#include "plugins/devices/cuda/kernels/common/host_report.h"
#include "plugins/devices/cuda/kernels/common/kernels.h"

namespace consist::cuda {

/// Throws UnavailableError where they do not: with another precision the run would not be what was asked for.
inline void require_fp8(const KernelSettings& s) {
  constexpr int first = 89;  // Ada; Hopper is 90
  if (s.compute_capability >= first) return;
  throw UnavailableError("this GPU has compute capability " + std::to_string(s.compute_capability / 10) + "." +
                         std::to_string(s.compute_capability % 10) +
                         ", and tensor cores multiply 8-bit floats from 8.9 on (Ada, Hopper, Blackwell); use --precision bf16");
}

/// Report of quantize about a tensor that 8-bit floats cannot hold.
class NotFinite {
 public:
  explicit NotFinite(const KernelRequest& quantize)
      : tensor_(quantize.attributes.string("tensor")), type_(quantize.outputs[0].dtype) {}
  HostReport::Words* on_device() const { return report_.on_device(); }
  /// After a step: throws Error with the tensor's name if it was told.
  void check() {
    const auto not_a_number = report_.take();
    if (!not_a_number) return;
    throw Error("tensor '" + tensor_ + "' holds " + (*not_a_number != 0 ? "NaN" : "an infinity") + ", which " +
                std::string(name_of(type_)) + " cannot represent: training has diverged, or its input has");
  }

 private:
  std::string tensor_;
  DType type_;
  HostReport report_;
};

/// quantize with scales per row or block. Throws UnavailableError for shapes that cannot be.
Made make_quantize_scaled(const KernelRequest& r, Scaling scaling);

}  // namespace consist::cuda
