// Initial weights are the function that the header states, bit for bit, however they are computed.
#include "core/state/initial_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace consist {
namespace {

std::uint64_t split_mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// From the numbers of a counter, one after the other.
float reference(std::uint64_t start, float mean, float scale) {
  std::int64_t sum = 0;
  for (const std::uint64_t counter : {start, start + std::uint64_t{0x9e3779b97f4a7c15}}) {
    for (int part = 0; part < 4; ++part) sum += static_cast<std::int64_t>(split_mix(counter) >> (16 * part) & 0xffff);
  }
  const float scaled = scale * static_cast<float>(sum - 4 * 65535);
  return mean + scaled;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

TEST(InitialValues, EveryLoopGivesTheSameBits) {
  const std::vector<InitialValueLoop> loops = initial_value_loops();
  ASSERT_FALSE(loops.empty());
  for (const std::uint64_t start : {0ULL, 1ULL, 0x123456789abcdef0ULL, ~0ULL}) {
    for (const std::size_t count : {0, 1, 7, 16, 33, 1000}) {
      for (const float mean : {0.0F, 1.7F}) {
        std::vector<float> expected;
        for (std::size_t i = 0; i < count; ++i)
          expected.push_back(reference(start + i * 2 * 0x9e3779b97f4a7c15ULL, mean, 1.3e-7F));
        for (std::size_t loop = 0; loop < loops.size(); ++loop) {
          std::vector<float> values(count);
          loops[loop](values, start, mean, 1.3e-7F);
          EXPECT_EQ(bits_of(values), bits_of(expected)) << "loop " << loop << ", start " << start << ", mean " << mean;
        }
      }
    }
  }
}

TEST(InitialValues, AreThoseOfTheFirstRelease) {
  // Checkpoints, published curves and other layouts rest on these.
  const struct {
    std::uint64_t seed;
    const char* name;
    std::int64_t first;
    float mean, std;
    std::vector<std::uint32_t> bits;
  } cases[] = {
      {0, "model.embed_tokens.weight", 0, 0, 0.02F, {0x39841395, 0x3c6c925c, 0x3bed4b59, 0x3ac37823, 0xbb557f5e, 0xbbb9895f}},
      {1,
       "model.layers.31.mlp.down_proj.weight",
       58720250,
       0,
       0.0025F,
       {0xbb1337a7, 0x3a4af3d5, 0xbae901f9, 0x3a96c0fc, 0x3930cdde, 0xbb957c16}},
      {~0ULL, "w", std::int64_t{1} << 40, 0.25F, 0.02F, {0x3e7c10de, 0x3e8ec31f, 0x3e887439, 0x3e74d2cd, 0x3e83ca25, 0x3e6c479a}},
  };
  for (const auto& c : cases) {
    std::vector<float> values(c.bits.size());
    initial_values(values, c.seed, c.name, c.first, c.mean, c.std);
    EXPECT_EQ(bits_of(values), c.bits) << c.name;
  }
}

TEST(InitialValues, DoNotDependOnWhereAPartBegins) {
  std::vector<float> whole(1000), part(311);
  initial_values(whole, 7, "lm_head.weight", 40, 0, 0.02F);
  initial_values(part, 7, "lm_head.weight", 40 + 229, 0, 0.02F);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 229));
  std::vector<float> other(1000);
  initial_values(other, 8, "lm_head.weight", 40, 0, 0.02F);
  EXPECT_NE(whole, other);
  initial_values(other, 7, "lm_head.weighs", 40, 0, 0.02F);
  EXPECT_NE(whole, other);
}

TEST(InitialValues, AreUniformWhereAParameterAsksForIt) {
  std::vector<float> values(200'000), part(100);
  Parameter parameter{.name = "w.lora_A.weight", .init_mean = 0.25F, .init_std = 0.1F, .init_uniform = true};
  initial_values(values, 3, parameter, 0);
  initial_values(part, 3, parameter, 777);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + 777));
  const double bound = 0.1 * std::sqrt(3.0);
  std::vector<int> tenths(10);
  for (const float value : values) {
    ASSERT_LE(std::abs(static_cast<double>(value) - 0.25), bound + 1e-6);
    ++tenths[static_cast<std::size_t>(std::min(9.0, (static_cast<double>(value) - 0.25 + bound) / (2 * bound) * 10))];
  }
  for (const int count : tenths) EXPECT_NEAR(count, 20'000, 5 * std::sqrt(20'000 * 0.9));
  parameter.init_uniform = false;
  initial_values(part, 3, parameter, 777);
  EXPECT_FALSE(std::equal(part.begin(), part.end(), values.begin() + 777));
}

TEST(InitialValues, HaveTheirMeanAndVariance) {
  std::vector<float> values(200'000);
  initial_values(values, 1, "w", 0, 0.5F, 0.02F);
  double sum = 0, squares = 0;
  for (float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (float value : values) squares += (value - mean) * (value - mean);
  EXPECT_NEAR(mean, 0.5, 4 * 0.02 / std::sqrt(200'000.0));
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(values.size())), 0.02, 0.02 * 0.01);
  initial_values(values, 1, "w", 0, 1, 0);
  EXPECT_EQ(values, std::vector<float>(values.size(), 1.0F));
}

}  // namespace
}  // namespace consist
