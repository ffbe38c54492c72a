// Helpers of tests of 8-bit kernels: each device, random tensors with what quantizing must survive.
#pragma once

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

#include "consist/error.h"
#include "consist/float8.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/fp8_product.h"
#include "tests/kernels/run_kernel.h"

namespace consist::test {

struct Fp8Setup {
  std::string name, device;
  std::map<std::string, std::string> options;
};
inline void PrintTo(const Fp8Setup& setup, std::ostream* out) {
  *out << setup.name;
}

inline const float infinity = std::numeric_limits<float>::infinity();
inline const float not_a_number = std::numeric_limits<float>::quiet_NaN();

class Fp8Kernel : public DeviceTest<Fp8Setup> {
 protected:
  void SetUp() override {
    open_or_skip(GetParam().device, GetParam().options, [&] {
      HostTensor one(DType::e4m3, {1, 16, 16}), scale(DType::f32, {}), w(DType::e4m3, {16, 16});
      run("fp8_linear", {one, scale, w, scale}, product_attributes(DType::bf16));
    });
  }

  HostTensors run(const std::string& op, const HostTensors& in, const Attributes& attributes = {}) {
    return run_kernel(*device_, op, in, attributes);
  }
  static Attributes product_attributes(DType type, int fast = 0) {
    return {{"dtype", std::string(name_of(type))}, {"fast_accumulation", std::int64_t{fast}}};
  }
  static Attributes quantize_attributes(DType type) {
    return {{"dtype", std::string(name_of(type))}, {"tensor", std::string("layer.7.down")}};
  }
  static Accumulator accumulator(bool fast = false) { return accumulator_of(GetParam().device, fast); }
  static std::uint8_t code(float value, DType type) {
    return type == DType::e4m3 ? to_float8<e4m3_format>(value) : to_float8<e5m2_format>(value);
  }
  static HostTensor scalar(float value) {
    HostTensor tensor(DType::f32, {});
    tensor.set(0, value);
    return tensor;
  }

  HostTensor random(DType type, const Shape& shape, double scale = 1) {
    return to_host(reference::random_value(engine_, type, shape, scale));
  }

  /// Random numbers of which some are outliers, zeros of both signs and bf16 subnormals.
  HostTensor awkward(const Shape& shape) {
    HostTensor x = random(DType::bf16, shape, 0.02);
    const double special[] = {0.0, -0.0, 3.5, -117.0, 1e-40, -9.2e-41, 1e-5};
    for (std::int64_t i = 0; i < x.shape.elements(); i += 1 + static_cast<std::int64_t>(engine_() % 37))
      x.set(i, special[engine_() % 7]);
    return x;
  }

  std::mt19937 engine_{29};
};

inline auto fp8_setups_of_cpu() {
  return ::testing::Values(Fp8Setup{"v2", "cpu", {{"level", "x86-64-v2"}, {"threads", "1"}}},
                           Fp8Setup{"v3_emulated", "cpu", {{"level", "x86-64-v3"}, {"threads", "3"}, {"bf16", "emulated"}}},
                           Fp8Setup{"v4_emulated", "cpu", {{"level", "x86-64-v4"}, {"threads", "1"}, {"bf16", "emulated"}}},
                           Fp8Setup{"v4_native", "cpu", {{"level", "x86-64-v4"}, {"threads", "1"}, {"bf16", "native"}}});
}
inline std::string name_of_setup(const ::testing::TestParamInfo<Fp8Setup>& info) {
  return info.param.name;
}

}  // namespace consist::test
