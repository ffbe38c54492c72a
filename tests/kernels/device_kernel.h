// Kernels of a device at small, odd shapes, against core/reference/ops.h.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "consist/error.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/run_kernel.h"

namespace consist::test {

struct Setup {
  std::string name;
  std::string device;
  std::map<std::string, std::string> options;
  DType dtype;     ///< of activations and parameters
  DType gradient;  ///< of parameters' gradients
};

inline void PrintTo(const Setup& setup, std::ostream* out) {
  *out << setup.name;
}

/// Its members are public for helpers that several tests share.
class DeviceKernel : public DeviceTest<Setup> {
 public:
  void SetUp() override { open_or_skip(GetParam().device, GetParam().options); }
  DType dtype() const { return GetParam().dtype; }
  DType gradient() const { return GetParam().gradient; }
  bool narrow() const { return dtype() == DType::bf16; }
  /// f32: sums of up to some hundred terms in another order, and exp to two units in the last place. bf16: inputs are exact,
  /// results (and what docs/ops.md says is rounded on the way) have 8 bits.
  double tolerance() const { return narrow() ? 6e-3 : 4e-6; }

  Value random(const Shape& shape, double scale = 1, double mean = 0) {
    return reference::random_value(engine_, dtype(), shape, scale, mean);
  }
  Values run(const std::string& op, const Values& in, const Attributes& attributes = {}) {
    return run_kernel(*device_, op, in, attributes);
  }
  Attributes with_gradient(Attributes attributes = {}) const {
    attributes.set("dtype", std::string(name_of(gradient())));
    return attributes;
  }
  /// Absent, or a random accumulator for `gradient`, to which that is added.
  std::optional<Value> accumulator(bool present, DType type, Value& expected) {
    if (!present) return std::nullopt;
    const Value made = reference::random_value(engine_, type, expected.shape);
    for (std::size_t i = 0; i < expected.data.size(); ++i) expected.data[i] += made.data[i];
    return made;
  }

  std::mt19937 engine_{17};
};

/// Those that need no dtype, once per kind of device.
class DeviceKernels : public DeviceTest<std::string> {
 protected:
  void SetUp() override { open_or_skip(GetParam(), {}); }
};

}  // namespace consist::test
