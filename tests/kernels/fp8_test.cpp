// amax, quantize and products of 8-bit floats of every device: quantized values, amax and scales to the bit, products against
// fp64.
#include <gmock/gmock.h>

#include <cmath>

#include "consist/error.h"
#include "tests/kernels/fp8_kernel.h"

namespace consist {
namespace {

using test::expect_product;
using test::Fp8Kernel;
using test::HostTensor;
using test::HostTensors;
using test::infinity;
using test::not_a_number;
using test::Product;
using test::product;
using test::ProductSizes;

const Shape shapes[] = {{1, 1, 1},     {2, 3, 5}, {1, 33, 17}, {3, 16, 48}, {2, 64, 128},
                        {1, 130, 272}, {48, 96},  {131, 7},    {256, 320}};

TEST_P(Fp8Kernel, AmaxIsTheLargestMagnitude) {
  for (const Shape& shape : shapes) {
    HostTensor x = awkward(shape);
    float expected = 0;
    for (std::int64_t i = 0; i < shape.elements(); ++i) expected = std::max(expected, std::abs(static_cast<float>(x[i])));
    EXPECT_EQ((*run("amax", {x})[0])[0], expected) << shape.text();
    const auto last = shape.elements() - 1;
    x.set(last / 2, -infinity);
    EXPECT_EQ((*run("amax", {x})[0])[0], infinity) << shape.text();
    x.set(last, not_a_number);
    EXPECT_TRUE(std::isnan((*run("amax", {x})[0])[0])) << shape.text();
  }
  EXPECT_EQ((*run("amax", {HostTensor(DType::bf16, {2, 8, 16})})[0])[0], 0);
}

/// Outputs are those of the op alone, to the bit, and behind them comes the largest magnitude of each that `of` names.
TEST_P(Fp8Kernel, OpsStateTheLargestMagnitudeOfWhatTheyMake) {
  for (const Shape& shape : {Shape{1, 1, 1}, {2, 3, 5}, {3, 16, 48}, {2, 65, 136}, {1, 33, 1544}}) {
    const HostTensor a = random(DType::bf16, shape, 3), b = awkward(shape), c = random(DType::bf16, shape),
                     w = random(DType::bf16, {shape.last()});
    struct Case {
      const char* op;
      HostTensors in;
      std::int64_t of;
    };
    for (const Case& k :
         {Case{"rms_norm", {a, std::nullopt, w}, 1}, Case{"rms_norm", {a, b, w}, 1}, Case{"rms_norm", {a, b, w}, 3},
          Case{"swiglu", {a, b}, 1}, Case{"swiglu_grad", {c, a, b}, 3}, Case{"swiglu_grad", {c, a, b}, 2}}) {
      SCOPED_TRACE(std::string(k.op) + " of " + shape.text());
      Attributes attributes{{"epsilon", 1e-5}};
      const HostTensors alone = run(k.op, k.in, attributes);
      attributes.set("amax_of", k.of);
      const HostTensors made = run(std::string(k.op) + "_amax", k.in, attributes);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        ASSERT_EQ(made[i].has_value(), alone[i].has_value());
        if (alone[i]) {
          EXPECT_TRUE(made[i]->bytes == alone[i]->bytes) << "output " << i;
        }
      }
      std::size_t next = alone.size();
      for (std::size_t i = 0; i < alone.size(); ++i) {
        if ((k.of >> i & 1) == 0) continue;
        double expected = 0;
        for (std::int64_t e = 0; e < shape.elements(); ++e) expected = std::max(expected, std::abs((*alone[i])[e]));
        EXPECT_EQ((*made.at(next++))[0], expected) << "amax of output " << i;
      }
      EXPECT_EQ(next, made.size());
    }
  }
}

TEST_P(Fp8Kernel, QuantizedValuesAndScalesAreEqualToTheBit) {
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    for (const Shape& shape : shapes) {
      const HostTensor x = awkward(shape);
      const HostTensor amax = *run("amax", {x})[0];
      // Limits are the amax of the tensor itself, and smaller ones: what lies beyond saturates.
      for (const float limit : {static_cast<float>(amax[0]), static_cast<float>(amax[0]) / 4, 0.0F, 1e-38F, 3e38F}) {
        const HostTensors made = run("quantize", {x, scalar(limit)}, quantize_attributes(type));
        const float scale = float8_scale(limit, type);
        EXPECT_EQ((*made[2])[0], 1.0F / scale);
        const std::int64_t columns = shape.last(), rows = shape.rows();
        for (std::int64_t i = 0; i < shape.elements(); ++i) {
          const std::uint8_t expected = code(static_cast<float>(x[i]) * scale, type);
          ASSERT_EQ(made[0]->bytes[static_cast<std::size_t>(i)], expected) << x[i] << " of " << shape.text() << " at " << i;
          ASSERT_EQ(made[1]->bytes[static_cast<std::size_t>(i % columns * rows + i / columns)], expected)
              << "transposed " << shape.text() << " at " << i;
        }
      }
    }
  }
}

TEST_P(Fp8Kernel, QuantizeReportsWhatIsNotFiniteByName) {
  const HostTensor x = random(DType::bf16, {2, 16, 32});
  for (const auto& [amax, what] : {std::pair{infinity, "infinity"}, {not_a_number, "NaN"}}) {
    try {
      run("quantize", {x, scalar(amax)}, quantize_attributes(DType::e4m3));
      ADD_FAILURE() << what << " was swallowed";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("'layer.7.down'"), ::testing::HasSubstr(what)));
    }
  }
}

/// Results of an H200 where cuBLASLt rounds a sum to bf16 before it adds a bf16 accumulator (this test's products, the first
/// element of each that lies beyond one rounding).
TEST(Fp8Product, SumsRoundedTwiceAreThoseOfAnH200) {
  struct Recorded {
    double found, sum, addend, loss;
  };
  for (const Recorded& r : {Recorded{-0.09375, -1.1423835754394531, 1.046875, 0.0011621078351709002},
                            {-0.0234375, 0.876220703125, -0.8984375, 0.0011013524781446904},
                            {-4.125, -2.5869140625, -1.515625, 0.003313946755952202},
                            {0.01513671875, 0.10076570510864258, -0.08544921875, 0.00010740770591155524},
                            {-1.15625, -2.1146650314331055, 0.94921875, 0.004321774364711928}}) {
    const double y = r.sum + r.addend, step = std::ldexp(1.0, std::ilogb(r.sum) - 7);
    EXPECT_GT(std::abs(r.found - y), r.loss + 0x1p-8 * (std::abs(y) + r.loss));
    EXPECT_TRUE(test::is_rounded_twice(r.found, r.sum, r.loss, r.addend, DType::bf16)) << r.found;
    for (const double wrong : {r.found - 4 * step, r.found + 4 * step})
      EXPECT_FALSE(test::is_rounded_twice(wrong, r.sum, r.loss, r.addend, DType::bf16)) << wrong;
  }
}

TEST_P(Fp8Kernel, ProductsAreThoseOfTheQuantizedValues) {
  // A GPU's tensor cores take multiples of 16.
  constexpr ProductSizes sizes[] = {{1, 16, 16, 16}, {2, 32, 48, 80}, {1, 64, 256, 32}, {3, 16, 1040, 64}};
  constexpr float x_descale = 0.25F, w_descale = 0.0078125F, dy_descale = 1.0F / 1024;
  for (const ProductSizes& s : sizes) {
    const std::int64_t tokens = s.batch * s.sequence;
    const HostTensor x = random(DType::e4m3, {s.batch, s.sequence, s.in}, 30), w = random(DType::e4m3, {s.out, s.in}, 30),
                     wt = random(DType::e4m3, {s.in, s.out}, 30), xt = random(DType::e4m3, {s.in, s.batch, s.sequence}, 30),
                     bias = random(DType::bf16, {s.out}, 9);
    for (const int fast : {0, 1}) {
      const Attributes attributes = product_attributes(DType::bf16, fast);
      Product y =
          product(x, w, tokens, s.out, s.in, double{x_descale} * w_descale, {s.batch, s.sequence, s.out}, accumulator(fast != 0));
      expect_product(run("fp8_linear", {x, scalar(x_descale), w, scalar(w_descale)}, attributes)[0], y, "y");
      for (std::int64_t i = 0; i < tokens * s.out; ++i) y.value.at(i) += bias[i % s.out];
      expect_product(run("fp8_linear", {x, scalar(x_descale), w, scalar(w_descale), bias}, attributes)[0], y, "y with bias");
    }
    for (const DType format : {DType::e4m3, DType::e5m2}) {
      const HostTensor dy = random(format, {s.batch, s.sequence, s.out}, 30),
                       dyt = random(format, {s.out, s.batch, s.sequence}, 30);
      for (const bool add : {false, true}) {
        Product dx =
            product(dy, wt, tokens, s.in, s.out, double{dy_descale} * w_descale, {s.batch, s.sequence, s.in}, accumulator());
        HostTensors in{dy, scalar(dy_descale), wt, scalar(w_descale)};
        const HostTensor acc = random(DType::bf16, dx.value.shape);
        if (add) in.emplace_back(dx.added_to = acc);
        expect_product(run("fp8_linear_input_grad", in, product_attributes(DType::bf16))[0], dx, "dx");
        for (const DType gradient : {DType::f32, DType::bf16}) {
          Product dw = product(dyt, xt, s.out, s.in, tokens, double{dy_descale} * x_descale, {s.out, s.in}, accumulator());
          HostTensors operands{dyt, scalar(dy_descale), xt, scalar(x_descale)};
          const HostTensor sum = random(gradient, dw.value.shape);
          if (add) operands.emplace_back(dw.added_to = sum);
          expect_product(run("fp8_linear_weight_grad", operands, product_attributes(gradient))[0], dw, "dw");
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Fp8Kernel, test::fp8_setups_of_cpu(), test::name_of_setup);
#ifdef CONSIST_HAS_CUDA_DEVICE
INSTANTIATE_TEST_SUITE_P(Cuda, Fp8Kernel, ::testing::Values(test::Fp8Setup{"cuda", "cuda", test::kCudaOptions}),
                         test::name_of_setup);
#endif

}  // namespace
}  // namespace consist
