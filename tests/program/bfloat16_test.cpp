// bfloat16 against its definition: the nearest of the two neighbours, and of two as near the even one.
#include "consist/bfloat16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace consist {
namespace {

constexpr std::uint16_t infinity = 0x7f80, sign = 0x8000;

TEST(Bfloat16, EveryCodeIsANumberThatGivesThatCode) {
  for (std::uint32_t code = 0; code <= 0xffff; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = from_bfloat16(bits);
    if (std::isnan(value)) {
      EXPECT_EQ(to_bfloat16(value), bits | 0x40) << code;
      continue;
    }
    EXPECT_EQ(to_bfloat16(value), bits) << code;
    const int exponent = bits >> 7 & 0xff, mantissa = bits & 0x7f;
    if (exponent == 0xff) continue;
    const double magnitude = std::ldexp(exponent == 0 ? mantissa : 128 + mantissa, std::max(exponent, 1) - 127 - 7);
    EXPECT_EQ(value, (bits & sign) != 0 ? -magnitude : magnitude) << code;
  }
}

TEST(Bfloat16, NumbersBetweenTwoCodesBecomeTheNearestOneAndHalvesTheEvenOne) {
  for (std::uint32_t code = 0; code < infinity; ++code) {
    const auto low = static_cast<std::uint16_t>(code), high = static_cast<std::uint16_t>(code + 1);
    const auto between = [&](std::uint32_t part) { return std::bit_cast<float>(code << 16 | part); };
    EXPECT_EQ(to_bfloat16(between(0x7fff)), low) << code;
    EXPECT_EQ(to_bfloat16(between(0x8000)), code % 2 == 0 ? low : high) << code;
    EXPECT_EQ(to_bfloat16(between(0x8001)), high) << code;  // behind the largest number: infinity
    EXPECT_EQ(to_bfloat16(-between(0x8001)), high | sign) << code;
  }
}

TEST(Bfloat16, NotANumberStaysOneWhateverBitsItHas) {
  for (const std::uint32_t bits : {0x7f800001U, 0x7f80ffffU, 0x7fffffffU, 0xff800001U, 0xffffffffU}) {
    const std::uint16_t code = to_bfloat16(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(from_bfloat16(code))) << bits;
    EXPECT_EQ(code & sign, static_cast<int>(bits >> 16 & sign)) << bits;
  }
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::infinity()), infinity);
  EXPECT_EQ(to_bfloat16(-std::numeric_limits<float>::infinity()), infinity | sign);
}

}  // namespace
}  // namespace consist
