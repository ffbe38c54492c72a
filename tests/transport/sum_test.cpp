// Sums of collectives, element by element against the definition.
#include "core/collectives/sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "consist/error.h"

namespace consist {
namespace {

float from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

TEST(Sum, AddsF32InPlaceAndApart) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const std::size_t count : {0, 1, 7, 8, 31, 1000}) {
    std::vector<float> a(count), b(count), to(count);
    for (auto& x : a) x = normal(random);
    for (auto& x : b) x = normal(random);
    sum(to.data(), a.data(), b.data(), count, DType::f32);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(to[i], a[i] + b[i]);
    sum(a.data(), a.data(), b.data(), count, DType::f32);
    ASSERT_EQ(a, to);
  }
}

// Every bf16 value against some others: the sum is the f32 sum's nearest bf16, ties to even.
TEST(Sum, RoundsBf16ToNearestEven) {
  std::vector<std::uint16_t> a, b;
  for (std::uint32_t x = 0; x < 65536; ++x) {
    for (const std::uint32_t y : {0x0000U, 0x8000U, 0x3F80U, 0x3B80U, 0xBB80U, 0x7F7FU, 0xFF80U, 0x0001U, x, x ^ 0x8000U}) {
      a.push_back(static_cast<std::uint16_t>(x));
      b.push_back(static_cast<std::uint16_t>(y));
    }
  }
  std::vector<std::uint16_t> to(a.size());
  sum(to.data(), a.data(), b.data(), a.size(), DType::bf16);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float exact = from_bf16(a[i]) + from_bf16(b[i]);
    const float got = from_bf16(to[i]);
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(got)) << std::hex << a[i] << " + " << b[i];
      continue;
    }
    const std::uint16_t below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(exact) >> 16U);  // towards zero
    if (from_bf16(below) == exact) {
      ASSERT_EQ(to[i], below) << std::hex << a[i] << " + " << b[i];
      continue;
    }
    const std::uint16_t above = static_cast<std::uint16_t>(below + 1);
    // Beyond the largest finite value the next step counts as twice that distance, which is where infinity begins.
    const double high =
        std::isinf(from_bf16(above)) ? std::copysign(std::exp2(128.0), exact) : static_cast<double>(from_bf16(above));
    const double to_below = std::abs(static_cast<double>(exact) - from_bf16(below));
    const double to_above = std::abs(high - static_cast<double>(exact));
    const std::uint16_t expected = to_below < to_above ? below : to_below > to_above ? above : (below % 2 == 0 ? below : above);
    ASSERT_EQ(to[i], expected) << std::hex << a[i] << " + " << b[i] << " = " << exact << " got " << got;
  }
}

TEST(Sum, RefusesOtherTypes) {
  int a = 1;
  EXPECT_THROW(sum(&a, &a, &a, 1, DType::i32), UsageError);
}

}  // namespace
}  // namespace consist
