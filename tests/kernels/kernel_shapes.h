// Kernels of the GPU at the shapes of models and at odd ones, against fp64 on sampled elements: each sample is written out from
// docs/ops.md. All other elements must at least be numbers; memory is poisoned with NaN before.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "consist/error.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/run_kernel.h"

namespace consist::test {

struct Extents {
  const char* name;
  std::int64_t batch, sequence, channels, heads, kv_heads, dim, hidden, vocabulary;
};
struct DTypes {
  const char* name;
  DType dtype, gradient;
};

inline void PrintTo(const Extents& extents, std::ostream* out) {
  *out << extents.name;
}
inline void PrintTo(const DTypes& types, std::ostream* out) {
  *out << types.name;
}

/// Results of a kernel at some elements, and the expected ones.
class Samples {
 public:
  void add(double found, double expected) {
    found_.push_back(found);
    expected_.push_back(expected);
  }
  void expect_close(double tolerance, const std::string& what) const {
    const Shape shape{static_cast<std::int64_t>(found_.size())};
    test::expect_close(reference::Value{DType::f32, shape, found_}, reference::Value{DType::f32, shape, expected_}, tolerance,
                       what);
  }

 private:
  std::vector<double> found_, expected_;
};

class KernelShapes : public DeviceTest<std::tuple<Extents, DTypes>> {
 protected:
  void SetUp() override { open_or_skip("cuda", kCudaOptions); }
  const Extents& e() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()).dtype; }
  DType gradient() const { return std::get<1>(GetParam()).gradient; }
  bool narrow() const { return dtype() == DType::bf16; }
  std::int64_t tokens() const { return e().batch * e().sequence; }
  Shape rows_of(std::int64_t width) const { return {e().batch, e().sequence, width}; }

  /// One rounding of an f32 calculation to `type`, at most; sums of tens of thousands of f32 terms.
  static double rounding(DType type) { return type == DType::bf16 ? 4.5e-3 : 1e-5; }

  /// Uniform around `mean` with standard deviation `scale`: quick, since there are hundreds of millions.
  HostTensor random(DType type, const Shape& shape, double scale = 1, double mean = 0) {
    HostTensor tensor(type, shape);
    const double width = scale * std::sqrt(12.0) / 65536;
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      tensor.set(i, mean + width * (static_cast<double>(bits() >> 48) - 32767.5));
    return tensor;
  }
  HostTensor random(const Shape& shape, double scale = 1, double mean = 0) { return random(dtype(), shape, scale, mean); }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() >> 11) % n; }
  /// The first, the last and some others of n.
  std::vector<std::int64_t> some(std::int64_t n, int count = 6) {
    std::vector<std::int64_t> chosen = {0, n - 1};
    while (static_cast<int>(chosen.size()) < count) chosen.push_back(below(n));
    return chosen;
  }

  /// Elements that are not finite: their exponents have all bits.
  static std::int64_t numbers_missing(const HostTensor& tensor) {
    const auto count = [&]<typename Bits>(Bits exponent) {
      std::int64_t missing = 0;
      for (std::size_t i = 0; i < tensor.bytes.size(); i += sizeof(Bits)) {
        Bits bits;
        std::memcpy(&bits, tensor.bytes.data() + i, sizeof bits);
        missing += (bits & exponent) == exponent;
      }
      return missing;
    };
    return tensor.dtype == DType::f32 ? count(std::uint32_t{0x7f800000}) : count(std::uint16_t{0x7f80});
  }

  HostTensors run(const std::string& op, const HostTensors& in, const Attributes& attributes = {},
                  Repeated repeated = Repeated::same_bits) {
    HostTensors out = run_kernel(*device_, op, in, attributes, repeated);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (!out[i]) continue;
      const std::int64_t strange = numbers_missing(*out[i]);
      EXPECT_EQ(strange, 0) << "elements of output " << i << " of " << op << " that are not numbers, of "
                            << out[i]->shape.elements();
    }
    return out;
  }
  Attributes with_gradient(Attributes attributes = {}) const {
    attributes.set("dtype", std::string(name_of(gradient())));
    return attributes;
  }
  /// Present or absent by chance, so that both occur over the cases; zero in the formulas when absent.
  std::optional<HostTensor> accumulator(bool present, DType type, const Shape& shape) {
    return present ? std::optional(random(type, shape)) : std::nullopt;
  }
  static double at(const std::optional<HostTensor>& tensor, std::int64_t i) { return tensor ? (*tensor)[i] : 0; }

  /// [sequence, dim]: cosines, then sines.
  HostTensor rope_table() const {
    HostTensor table(DType::f32, {e().sequence, e().dim});
    for (std::int64_t p = 0; p < e().sequence; ++p) {
      for (std::int64_t i = 0; i < e().dim / 2; ++i) {
        const double angle = static_cast<double>(p) * std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(e().dim));
        table.set(p * e().dim + i, std::cos(angle));
        table.set(p * e().dim + e().dim / 2 + i, std::sin(angle));
      }
    }
    return table;
  }


 private:
  std::uint64_t bits() {  // splitmix64
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint64_t state_ = 29;
};

}  // namespace consist::test
