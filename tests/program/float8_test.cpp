// 8-bit floats against their definition (OCP FP8): the nearest of all numbers of the format, found by trying each.
#include "consist/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace consist {
namespace {

struct Format {
  DType type;
  int mantissa_bits, bias, numbers;  ///< codes 0 .. numbers-1 are the numbers from 0 up
  double largest;
};
constexpr Format formats[] = {{DType::e4m3, 3, 7, 0x7f, 448}, {DType::e5m2, 2, 15, 0x7c, 57344}};

std::uint8_t encode(DType type, float value) {
  return type == DType::e4m3 ? to_float8<e4m3_format>(value) : to_float8<e5m2_format>(value);
}
float decode(DType type, std::uint8_t code) {
  return type == DType::e4m3 ? from_float8<e4m3_format>(code) : from_float8<e5m2_format>(code);
}

/// The number that the fields of a code stand for.
double number(const Format& f, int code) {
  const int exponent = code >> f.mantissa_bits, mantissa = code & ((1 << f.mantissa_bits) - 1);
  const double fraction = std::ldexp(mantissa, -f.mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - f.bias) : std::ldexp(1 + fraction, exponent - f.bias);
}

/// The code of the number nearest to |value|; of two, the even one.
int nearest(const Format& f, double magnitude) {
  int best = 0;
  for (int code = 1; code < f.numbers; ++code) {
    const double distance = std::abs(number(f, code) - magnitude), least = std::abs(number(f, best) - magnitude);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(Float8, EveryCodeIsTheNumberOfItsFields) {
  for (const Format& f : formats) {
    EXPECT_EQ(number(f, f.numbers - 1), f.largest);
    for (int code = 0; code < f.numbers; ++code) {
      EXPECT_EQ(decode(f.type, static_cast<std::uint8_t>(code)), number(f, code)) << code;
      EXPECT_EQ(decode(f.type, static_cast<std::uint8_t>(code | 0x80)), -number(f, code)) << code;
      EXPECT_EQ(std::signbit(decode(f.type, static_cast<std::uint8_t>(code | 0x80))), true) << code;
    }
    EXPECT_TRUE(std::isnan(decode(f.type, 0x7f)));
    EXPECT_TRUE(std::isnan(decode(f.type, 0xff)));
  }
}

TEST(Float8, RoundsToTheNearestAndSaturates) {
  std::mt19937 random(3);
  for (const Format& f : formats) {
    std::vector<float> values{0.0F, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min(),
                              std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()};
    for (int code = 0; code + 1 < f.numbers; ++code) {
      // Each number, the tie above it and the floats beside both.
      for (const double x : {number(f, code), 0.5 * (number(f, code) + number(f, code + 1))}) {
        const auto exact = static_cast<float>(x);
        values.insert(values.end(), {exact, std::nextafter(exact, 0.0F), std::nextafter(exact, 1e9F)});
      }
    }
    for (int i = 0; i < 20'000; ++i)
      values.push_back(std::ldexp(1.0F + static_cast<float>(random() % 65'536) / 65'536, static_cast<int>(random() % 48) - 24));
    for (const float value : values) {
      const int expected = value >= f.largest ? f.numbers - 1 : nearest(f, value);
      ASSERT_EQ(encode(f.type, value), expected) << value;
      ASSERT_EQ(encode(f.type, -value), expected | 0x80) << -value;
    }
    EXPECT_EQ(encode(f.type, std::numeric_limits<float>::quiet_NaN()), 0x7f);
    EXPECT_EQ(encode(f.type, -std::numeric_limits<float>::quiet_NaN()), 0x7f);
  }
}

TEST(Float8, ScaleIsTheLargestPowerOfTwoThatFits) {
  std::mt19937 random(5);
  for (const Format& f : formats) {
    std::vector<float> values{1.75F, std::nextafter(1.75F, 2.0F),   std::nextafter(1.75F, 1.0F),      1e-30F,
                              1e30F, static_cast<float>(f.largest), std::numeric_limits<float>::max()};
    for (int i = 0; i < 2000; ++i)
      values.push_back(std::ldexp(1.0F + static_cast<float>(random() % 65'536) / 65'536, static_cast<int>(random() % 200) - 100));
    for (const float amax : values) {
      const float scale = float8_scale(amax, f.type);
      int exponent = 0;
      ASSERT_EQ(std::frexp(scale, &exponent), 0.5F) << amax;
      ASSERT_LE(double{scale} * amax, f.largest) << amax;
      ASSERT_GT(2.0 * scale * amax, f.largest) << amax;
    }
    EXPECT_EQ(float8_scale(0.0F, f.type), 1.0F);
    EXPECT_EQ(float8_scale(std::numeric_limits<float>::denorm_min(), f.type), std::ldexp(1.0F, 126));
    EXPECT_TRUE(std::isnan(float8_scale(std::numeric_limits<float>::infinity(), f.type)));
    EXPECT_TRUE(std::isnan(float8_scale(std::numeric_limits<float>::quiet_NaN(), f.type)));
  }
}

}  // namespace
}  // namespace consist
