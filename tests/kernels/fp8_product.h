// Products of 8-bit floats in fp64, and how far the sums of a device may lie from them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/kernels/run_kernel.h"

namespace consist::test {

/// In what a device adds up the terms of a product.
enum class Accumulator {
  fp32,
  tensor_cores,            ///< promoted to fp32 after every 128 terms
  tensor_cores_unpromoted  ///< fast accumulation
};
inline Accumulator accumulator_of(const std::string& device, bool fast = false) {
  if (device == "cpu") return Accumulator::fp32;
  return fast ? Accumulator::tensor_cores_unpromoted : Accumulator::tensor_cores;
}

/// The most that Hopper's tensor cores lose of a sum. They take 32 terms and the sum before them at a time, shift all to the
/// largest of them, cut off what is below its 13th fraction bit, and the result's in the same way (DeepSeek-V3 technical report,
/// section 3.5.2; Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv 2512.07004). Emulated so, sums agree with
/// those of an H200 to the bit. As a limit every operand may lose what can be lost, always to the same side.
inline double tensor_core_loss(std::span<const double> terms, bool promoted) {
  constexpr std::size_t at_a_time = 32, promoted_after = 128;
  constexpr int fraction_bits = 13;
  const auto last_place = [](double x) { return x == 0 ? 0 : std::ldexp(1.0, std::ilogb(x) - fraction_bits); };
  double sum = 0, loss_of_sum = 0, loss = 0;
  for (std::size_t begin = 0; begin < terms.size(); begin += at_a_time) {
    if (promoted && begin % promoted_after == 0) {
      loss += loss_of_sum;
      sum = loss_of_sum = 0;
    }
    const auto added = terms.subspan(begin, std::min(at_a_time, terms.size() - begin));
    double largest = std::abs(sum) + loss_of_sum;
    for (const double term : added) {
      largest = std::max(largest, std::abs(term));
      sum += term;
    }
    loss_of_sum += static_cast<double>(added.size() + 1) * last_place(largest);
    loss_of_sum += last_place(std::abs(sum) + loss_of_sum);
  }
  return loss + loss_of_sum;
}

struct ProductSizes {
  std::int64_t batch, sequence, in, out;
};

struct Product {
  Value value;
  std::vector<double> loss;  ///< of each element: the most that a sum of its terms may lie beside it, before it is rounded
  Accumulator accumulator = Accumulator::fp32;
  std::optional<HostTensor> added_to = std::nullopt;  ///< of the result's dtype; where the op adds to what is there
};

/// a [m, k] b [n, k]ᵀ in fp64, of the numbers that the codes mean times what `a_scale` and `b_scale` say of row and column.
/// Scales are powers of two and the same for what is added up before it is promoted, so that they move no limit.
template <typename A, typename B>
Product product(const HostTensor& a, const HostTensor& b, std::int64_t m, std::int64_t n, std::int64_t k, A a_scale, B b_scale,
                const Shape& shape, Accumulator accumulator) {
  const auto scaled = [k](const HostTensor& x, std::int64_t rows, const auto& scale) {
    std::vector<double> values(static_cast<std::size_t>(rows * k));
    for (std::int64_t i = 0; i < rows * k; ++i) values[static_cast<std::size_t>(i)] = x[i] * scale(i / k, i % k);
    return values;
  };
  const std::vector<double> left = scaled(a, m, a_scale), right = scaled(b, n, b_scale);
  Product y{reference::zeros(DType::f32, shape), std::vector<double>(static_cast<std::size_t>(m * n)), accumulator};
  std::vector<double> terms(static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitudes = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        const double term = left[static_cast<std::size_t>(i * k + p)] * right[static_cast<std::size_t>(j * k + p)];
        terms[static_cast<std::size_t>(p)] = term;
        sum += term;
        magnitudes += std::abs(term);
      }
      // Sums in fp32 in any order, and what it takes to scale and to add once more.
      double loss = static_cast<double>(k + 2) * 0x1p-24 * magnitudes;
      if (accumulator != Accumulator::fp32) loss += tensor_core_loss(terms, accumulator == Accumulator::tensor_cores);
      y.value.at(i * n + j) = sum;
      y.loss[static_cast<std::size_t>(i * n + j)] = loss;
    }
  }
  return y;
}

/// The same with one scale.
inline Product product(const HostTensor& a, const HostTensor& b, std::int64_t m, std::int64_t n, std::int64_t k, double scale,
                       const Shape& shape, Accumulator accumulator) {
  const auto of_a = [scale](std::int64_t, std::int64_t) { return scale; };
  return product(
      a, b, m, n, k, of_a, [](std::int64_t, std::int64_t) { return 1.0; }, shape, accumulator);
}

/// True if `found` can come from a sum within `loss` of `sum` that is rounded to `type`, added to `addend`, and rounded again:
/// rounding keeps the order, so it lies between the results of the two ends.
inline bool is_rounded_twice(double found, double sum, double loss, double addend, DType type) {
  const auto result = [=](double x) { return reference::rounded(reference::rounded(x, type) + addend, type); };
  return result(sum - loss) <= found && found <= result(sum + loss);
}

/// Every element within its limit: what its sum may lose, and the one rounding to the result's dtype. Where tensor cores' sums
/// are added to a bf16 tensor, they may be rounded to bf16 before that, too: on an H200 cuBLASLt does so for some sizes (results
/// of 16x16 to 80x48), and there the values recorded are those of tensor_core_loss's sums rounded twice, to the bit; for others
/// (from 32x256) it rounds once, as it does with a bias.
inline void expect_product(const std::optional<HostTensor>& found, const Product& expected, const std::string& what) {
  ASSERT_TRUE(found.has_value()) << what;
  ASSERT_EQ(found->shape, expected.value.shape) << what;
  const double rounding = found->dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
  const bool may_round_twice =
      expected.added_to.has_value() && found->dtype == DType::bf16 && expected.accumulator != Accumulator::fp32;
  double worst = 0;
  std::int64_t rounded_twice = 0;
  for (std::int64_t i = 0; i < expected.value.shape.elements(); ++i) {
    const double sum = expected.value.at(i), addend = expected.added_to ? (*expected.added_to)[i] : 0, y = sum + addend;
    const double loss = expected.loss[static_cast<std::size_t>(i)];
    const double error = std::abs((*found)[i] - y), limit = loss + rounding * (std::abs(y) + loss);
    if (error > limit && may_round_twice && is_rounded_twice((*found)[i], sum, loss, addend, found->dtype)) {
      ++rounded_twice;
      continue;
    }
    ASSERT_LE(error, limit) << what << "[" << i << "] of " << expected.value.shape.text() << " is " << (*found)[i]
                            << ", expected " << sum << " added to " << addend << " = " << y << ", of which a sum may lose "
                            << loss;
    if (limit > 0) worst = std::max(worst, error / limit);
  }
  if (std::getenv("CONSIST_TEST_ERRORS") != nullptr)
    std::printf("%-40s worst %.2f of the limit, %lld rounded twice\n", what.c_str(), worst,
                static_cast<long long>(rounded_twice));
}

}  // namespace consist::test
