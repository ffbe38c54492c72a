// quantize and products of 8-bit floats with scales per row and per block: codes and scales to the bit, products against fp64.
#include <gmock/gmock.h>

#include <cmath>

#include "consist/error.h"
#include "consist/float8_scaling.h"
#include "tests/kernels/fp8_kernel.h"

namespace consist {
namespace {

using test::expect_product;
using test::HostTensor;
using test::HostTensors;
using test::infinity;
using test::not_a_number;
using test::Product;
using test::product;
using test::ProductSizes;

/// One copy of a quantized tensor, [rows, columns], by its definition.
struct Expected {
  std::vector<std::uint8_t> codes;
  std::vector<float> descales;  ///< as they lie in memory
};

class Fp8Scaling : public test::Fp8Kernel {
 protected:
  static Attributes attributes_of(DType type, Scaling scaling) {
    Attributes attributes = quantize_attributes(type);
    attributes.set("scaling", std::string(name_of(scaling)));
    return attributes;
  }

  /// x(row, column) quantized: elements of a stretch of `along` columns and `down` rows share a scale, whose place `at` says.
  template <typename X, typename At>
  static Expected quantized(X x, DType type, std::int64_t rows, std::int64_t columns, std::int64_t down, std::int64_t along,
                            At at, std::int64_t descales) {
    Expected made{std::vector<std::uint8_t>(static_cast<std::size_t>(rows * columns)),
                  std::vector<float>(static_cast<std::size_t>(descales))};
    for (std::int64_t row0 = 0; row0 < rows; row0 += down) {
      for (std::int64_t column0 = 0; column0 < columns; column0 += along) {
        const std::int64_t row1 = std::min(row0 + down, rows), column1 = std::min(column0 + along, columns);
        float amax = 0;
        for (std::int64_t r = row0; r < row1; ++r) {
          for (std::int64_t c = column0; c < column1; ++c) amax = std::max(amax, std::abs(static_cast<float>(x(r, c))));
        }
        const float scale = float8_scale(amax, type);
        made.descales[static_cast<std::size_t>(at(row0, column0))] = 1.0F / scale;
        for (std::int64_t r = row0; r < row1; ++r) {
          for (std::int64_t c = column0; c < column1; ++c)
            made.codes[static_cast<std::size_t>(r * columns + c)] = code(static_cast<float>(x(r, c)) * scale, type);
        }
      }
    }
    return made;
  }

  /// The copy of x [rows, columns] that is stored as it is.
  template <typename X>
  static Expected copy_of(X x, DType type, Scaling scaling, std::int64_t rows, std::int64_t columns) {
    const std::int64_t along = scaling == Scaling::row ? columns : scale_block;
    if (scaling == Scaling::block_2d) {
      const auto at = [=](std::int64_t r, std::int64_t c) { return r / scale_block * square_stride(columns) + c / scale_block; };
      return quantized(x, type, rows, columns, scale_block, along, at, scale_blocks(rows) * square_stride(columns));
    }
    const auto at = [=](std::int64_t r, std::int64_t c) { return c / along * rows + r; };
    return quantized(x, type, rows, columns, 1, along, at, (columns + along - 1) / along * rows);
  }

  static void expect_equal(const HostTensor& codes, const HostTensor& descales, const Expected& expected,
                           const std::string& what) {
    ASSERT_EQ(codes.bytes.size(), expected.codes.size());
    for (std::size_t i = 0; i < expected.codes.size(); ++i) ASSERT_EQ(codes.bytes[i], expected.codes[i]) << what << " at " << i;
    // A tensor of sequences has room for more blocks than its tokens have.
    ASSERT_GE(descales.shape.elements(), static_cast<std::int64_t>(expected.descales.size())) << what;
    for (std::size_t i = 0; i < expected.descales.size(); ++i)
      ASSERT_EQ(descales[static_cast<std::int64_t>(i)], expected.descales[i]) << "descales of " << what << " at " << i;
  }

  void check_quantize(const Shape& shape, Scaling scaling) {
    HostTensor x = awkward(shape);
    const std::int64_t rows = shape.rows(), columns = shape.last();
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::int64_t row = i / columns, column = i % columns;
      // A row and a column of zeros, and a row that saturates what shares no scale with it.
      if (row == rows / 2 || column == columns / 2) x.set(i, 0);
      if (row == rows / 3) x.set(i, x[i] * 1e6);
    }
    for (const DType type : {DType::e4m3, DType::e5m2}) {
      SCOPED_TRACE(std::string(name_of(scaling)) + " of " + shape.text() + " as " + std::string(name_of(type)));
      const HostTensors made = run("quantize", {x}, attributes_of(type, scaling));
      ASSERT_EQ(made.size(), 4U);
      expect_equal(*made[0], *made[2],
                   copy_of([&](std::int64_t r, std::int64_t c) { return x[r * columns + c]; }, type, scaling, rows, columns),
                   "q");
      expect_equal(*made[1], *made[3],
                   copy_of([&](std::int64_t r, std::int64_t c) { return x[c * columns + r]; }, type, scaling, columns, rows),
                   "qt");
    }
  }

  /// Powers of two around 1.
  HostTensor random_scales(const Shape& shape) {
    HostTensor scales(DType::f32, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i) scales.set(i, std::ldexp(1.0, static_cast<int>(engine_() % 7) - 3));
    return scales;
  }
};

const Shape activations[] = {{1, 16, 16}, {2, 32, 48}, {1, 64, 256}, {3, 48, 144}, {1, 256, 336}, {2, 80, 1040}};
const Shape weights[] = {{16, 16}, {48, 96}, {256, 336}, {144, 128}, {16, 1040}, {640, 80}};

TEST_P(Fp8Scaling, QuantizedValuesAndScalesAreEqualToTheBit) {
  for (const Shape& shape : activations) {
    for (const Scaling scaling : {Scaling::row, Scaling::block_1d}) check_quantize(shape, scaling);
  }
  for (const Shape& shape : weights) {
    for (const Scaling scaling : {Scaling::row, Scaling::block_2d}) check_quantize(shape, scaling);
  }
}

TEST_P(Fp8Scaling, OtherSizesAreQuantizedOrRefused) {
  const auto try_all = [&] {
    for (const Shape& shape : {Shape{1, 1, 1}, {2, 3, 5}, {1, 33, 17}, {1, 140, 130}}) {
      for (const Scaling scaling : {Scaling::row, Scaling::block_1d}) check_quantize(shape, scaling);
    }
    for (const Shape& shape : {Shape{1, 1}, {131, 7}, {130, 259}}) {
      for (const Scaling scaling : {Scaling::row, Scaling::block_2d}) check_quantize(shape, scaling);
    }
  };
  if (GetParam().device == "cpu") return try_all();
  try {
    try_all();
    ADD_FAILURE() << "sizes that tensor cores do not multiply were accepted";
  } catch (const UnavailableError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("'layer.7.down'"), ::testing::HasSubstr("multiples of 16")));
  }
}

TEST_P(Fp8Scaling, SquaresAreTheSameInBothCopies) {
  const HostTensor w = awkward({256, 144});
  const HostTensors made = run("quantize", {w}, attributes_of(DType::e4m3, Scaling::block_2d));
  for (std::int64_t i = 0; i < 256 * 144; ++i)
    ASSERT_EQ(made[0]->bytes[static_cast<std::size_t>(i)], made[1]->bytes[static_cast<std::size_t>(i % 144 * 256 + i / 144)]);
}

TEST_P(Fp8Scaling, QuantizeReportsWhatIsNotFiniteByName) {
  for (const Scaling scaling : {Scaling::row, Scaling::block_1d, Scaling::block_2d}) {
    for (const auto& [value, what] : {std::pair{-infinity, "infinity"}, {not_a_number, "NaN"}}) {
      HostTensor x = random(DType::bf16, scaling == Scaling::block_2d ? Shape{144, 160} : Shape{2, 144, 160});
      x.set(x.shape.elements() - 30, value);
      try {
        run("quantize", {x}, attributes_of(DType::e4m3, scaling));
        ADD_FAILURE() << what << " was swallowed with scales per " << name_of(scaling);
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("'layer.7.down'"), ::testing::HasSubstr(what)));
      }
    }
  }
}

/// The factor of element `column` of row `row` of an operand [rows, columns].
auto factor_of(Scaling scaling, const HostTensor& descales, std::int64_t rows, std::int64_t columns) {
  return [=](std::int64_t row, std::int64_t column) {
    if (scaling == Scaling::row) return descales[row];
    if (scaling == Scaling::block_1d) return descales[column / scale_block * rows + row];
    return descales[row / scale_block * square_stride(columns) + column / scale_block];
  };
}

TEST_P(Fp8Scaling, ProductsAreThoseOfTheQuantizedValues) {
  // Multiples of 16; of 128 and not; more blocks than a padded row of squares' scales has.
  constexpr ProductSizes sizes[] = {{1, 16, 16, 16}, {2, 32, 48, 80}, {1, 64, 256, 32}, {3, 16, 1040, 64}, {2, 80, 128, 656}};
  for (const std::string scaling : {"row", "block"}) {
    const bool blocks = scaling == "block";
    const Scaling a_scaling = blocks ? Scaling::block_1d : Scaling::row;
    const auto attributes_of_product = [&](DType type) {
      Attributes attributes = product_attributes(type);
      attributes.set("scaling", scaling);
      return attributes;
    };
    const auto scales_of = [&](const Shape& operand, bool weight, bool turned) {
      if (!blocks) return random_scales(turned || weight ? Shape{operand[0]} : Shape{operand[0], operand[1]});
      if (weight) return random_scales({scale_blocks(operand[0]), square_stride(operand[1])});
      return random_scales(turned ? Shape{operand[1], scale_blocks(operand[2]), operand[0]}
                                  : Shape{scale_blocks(operand[2]), operand[0], operand[1]});
    };
    /// y (+)= a bᵀ of m, n, k; `extra` is the bias of a linear or what a gradient adds to.
    const auto check = [&](const char* op, const HostTensor& a, const HostTensor& b, std::int64_t m, std::int64_t n,
                           std::int64_t k, const Shape& shape, DType result) {
      const std::string name = op;
      const bool linear = name == "fp8_linear", turned = name == "fp8_linear_weight_grad";
      SCOPED_TRACE(name + " of " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + ", scales per " +
                   scaling);
      const HostTensor a_scales = scales_of(a.shape, false, turned), b_scales = scales_of(b.shape, !turned, turned);
      const Scaling b_scaling = blocks && !turned ? Scaling::block_2d : a_scaling;
      Product y = product(a, b, m, n, k, factor_of(a_scaling, a_scales, m, k), factor_of(b_scaling, b_scales, n, k), shape,
                          accumulator());
      HostTensors in{a, a_scales, b, b_scales};
      expect_product(run(op, in, attributes_of_product(result))[0], y, "alone");
      const HostTensor extra = random(result, linear ? Shape{n} : shape, 9);
      for (std::int64_t i = 0; linear && i < m * n; ++i) y.value.at(i) += extra[i % n];
      if (!linear) y.added_to = extra;
      in.emplace_back(extra);
      expect_product(run(op, in, attributes_of_product(result))[0], y, "added to");
    };
    for (const ProductSizes& s : sizes) {
      const std::int64_t tokens = s.batch * s.sequence;
      check("fp8_linear", random(DType::e4m3, {s.batch, s.sequence, s.in}, 30), random(DType::e4m3, {s.out, s.in}, 30), tokens,
            s.out, s.in, {s.batch, s.sequence, s.out}, DType::bf16);
      for (const DType format : {DType::e4m3, DType::e5m2}) {
        check("fp8_linear_input_grad", random(format, {s.batch, s.sequence, s.out}, 30), random(DType::e4m3, {s.in, s.out}, 30),
              tokens, s.in, s.out, {s.batch, s.sequence, s.in}, DType::bf16);
        for (const DType gradient : {DType::f32, DType::bf16}) {
          check("fp8_linear_weight_grad", random(format, {s.out, s.batch, s.sequence}, 30),
                random(DType::e4m3, {s.in, s.batch, s.sequence}, 30), s.out, s.in, tokens, {s.out, s.in}, gradient);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Fp8Scaling, test::fp8_setups_of_cpu(), test::name_of_setup);
#ifdef CONSIST_HAS_CUDA_DEVICE
INSTANTIATE_TEST_SUITE_P(Cuda, Fp8Scaling, ::testing::Values(test::Fp8Setup{"cuda", "cuda", test::kCudaOptions}),
                         test::name_of_setup);
#endif

}  // namespace
}  // namespace consist
