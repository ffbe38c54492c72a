#include "consist/weight_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "consist/error.h"
#include "consist/program.h"
#include "core/state/weights_in_blocks.h"

namespace consist {
namespace {

using Code = WeightBlocks::Code;
using Floats = std::vector<float>;

Floats through_codes(const WeightBlocks& blocks, const Floats& values) {
  std::vector<std::uint8_t> bytes(values.size() / static_cast<std::size_t>(blocks.length) *
                                  static_cast<std::size_t>(blocks.bytes()));
  encode(blocks, values, bytes);
  Floats decoded(values.size());
  decode(blocks, bytes, decoded);
  return decoded;
}

Floats normal(std::size_t count) {
  std::mt19937 engine(5);
  std::normal_distribution<float> distribution(0, 0.02F);
  Floats values(count);
  for (float& value : values) value = distribution(engine);
  return values;
}

TEST(WeightBlocks, LieInTheBytesThatTheirFormatsSay) {
  EXPECT_EQ((WeightBlocks{Code::nf4, 64}).bytes(), 36);
  EXPECT_EQ((WeightBlocks{Code::e4m3, 64}).bytes(), 68);
  EXPECT_EQ((WeightBlocks{Code::nf4, 3}).bytes(), 6);
  EXPECT_EQ((WeightBlocks{Code::nf4, 64}).stored({8, 128}), (Shape{8, 72}));
  EXPECT_EQ((WeightBlocks{Code::nf4, 64}).weights({8, 72}), (Shape{8, 128}));
  EXPECT_THROW((WeightBlocks{Code::nf4, 64}).stored({8, 100}), ProgramError);
  // Scale 2, then codes of 1, -1 (15, 0) and of 0 and its upper neighbour (7, 8).
  const Floats values{2, -2, 0, 2 * nf4_values[8]};
  std::vector<std::uint8_t> bytes(6);
  encode(WeightBlocks{Code::nf4, 4}, values, bytes);
  EXPECT_THAT(bytes, ::testing::ElementsAre(0, 0, 0, 0x40, 0x0f, 0x87));
}

// Each weight becomes the number nearest to it: none of the others is nearer.
TEST(WeightBlocks, AreRoundedToNearest) {
  const WeightBlocks blocks{Code::nf4, 64};
  const Floats values = normal(64 * 50), found = through_codes(blocks, values);
  for (std::size_t b = 0; b < 50; ++b) {
    float scale = 0;
    for (std::size_t i = 64 * b; i < 64 * (b + 1); ++i) scale = std::max(scale, std::abs(values[i]));
    for (std::size_t i = 64 * b; i < 64 * (b + 1); ++i) {
      for (const float number : nf4_values)
        EXPECT_LE(std::abs(found[i] - values[i]), std::abs(number * scale - values[i]) * (1 + 1e-6F)) << i;
    }
  }
}

TEST(WeightBlocks, OfEightBitsHaveEightBits) {
  const Floats values = normal(64 * 50), found = through_codes({Code::e4m3, 64}, values);
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(found[i], values[i], std::abs(values[i]) * 0x1p-4F + largest / 448 * 0x1p-10F) << i;
}

// What was decoded is encoded as it was: checkpoints go from codes to weights and back.
TEST(WeightBlocks, DoNotChangeAgain) {
  for (const WeightBlocks& blocks : {WeightBlocks{Code::nf4, 64}, {Code::nf4, 1}, {Code::e4m3, 32}}) {
    const Floats once = through_codes(blocks, normal(64 * 20)), twice = through_codes(blocks, once);
    for (std::size_t i = 0; i < once.size(); ++i) EXPECT_FLOAT_EQ(twice[i], once[i]) << text_of(blocks) << " " << i;
  }
  EXPECT_EQ(through_codes({Code::nf4, 4}, {0, 0, 0, 0}), (Floats{0, 0, 0, 0}));
}

// Ranks and files have parts of the bytes and of the weights that begin and end within blocks.
TEST(WeightBlocks, AreWrittenAndReadInParts) {
  for (const WeightBlocks& blocks : {WeightBlocks{Code::nf4, 6}, {Code::e4m3, 5}}) {
    const Floats values = normal(static_cast<std::size_t>(20 * blocks.length));
    std::vector<std::uint8_t> whole(static_cast<std::size_t>(20 * blocks.bytes()));
    encode(blocks, values, whole);
    Floats decoded(values.size());
    decode(blocks, whole, decoded);
    for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>{0, 40}, {1, 3}, {6, 8}, {17, 60}, {33, 1}}) {
      std::vector<std::uint8_t> bytes(count);
      encode_part(
          blocks, [&](std::int64_t at, std::span<float> out) { std::copy_n(values.begin() + at, out.size(), out.begin()); },
          static_cast<std::int64_t>(first), bytes);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), whole.begin() + static_cast<std::ptrdiff_t>(first))) << first;
      Floats weights(count);
      decode_part(blocks, static_cast<std::int64_t>(first), weights, [&](std::int64_t at, std::span<std::uint8_t> out) {
        std::copy_n(whole.begin() + at, out.size(), out.begin());
      });
      EXPECT_TRUE(std::equal(weights.begin(), weights.end(), decoded.begin() + static_cast<std::ptrdiff_t>(first))) << first;
    }
  }
}

TEST(WeightBlocks, AreReadFromTexts) {
  const auto read = [](const char* text) { return parse_weight_blocks(text, "--frozen-weights"); };
  EXPECT_EQ(read("none"), WeightBlocks());
  EXPECT_EQ(read("nf4"), (WeightBlocks{Code::nf4, 64}));
  EXPECT_EQ(read("e4m3:128"), (WeightBlocks{Code::e4m3, 128}));
  for (const char* text : {"none", "nf4:64", "e4m3:4096", "nf4:1"}) EXPECT_EQ(text_of(read(text)), text);
  for (const char* text : {"", "q4", "nf4:", "nf4:0", "nf4:4097", "nf4:6x", "nf4:-64", "none:64", "nf4:64:64"}) {
    try {
      read(text);
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("--frozen-weights is '" + std::string(text) + "'; it must be none, nf4"));
    }
  }
  EXPECT_EQ(weight_blocks({{"blocks", "nf4:8"}}), (WeightBlocks{Code::nf4, 8}));
  EXPECT_THROW(weight_blocks({{"blocks", "none"}}), ProgramError);
  EXPECT_THROW(weight_blocks({{"blocks", "q4"}}), ProgramError);
}

}  // namespace
}  // namespace consist
