// The choice of a token: greedy, and by distributions that temperature, top-k and top-p state.
#include "core/training/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "consist/error.h"

namespace consist {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int draws = 20000;

/// Number of times that each token is drawn.
std::vector<int> counts(const SamplerSettings& settings, const std::vector<float>& logits) {
  Sampler sampler(settings);
  std::vector<int> drawn(logits.size());
  for (int i = 0; i < draws; ++i) ++drawn.at(static_cast<std::size_t>(sampler.next(logits)));
  return drawn;
}

/// Draws follow `probabilities`: Pearson's chi-squared is below what one seed in ten thousand exceeds, and what has probability 0
/// is never drawn.
void expect_distribution(const SamplerSettings& settings, const std::vector<float>& logits, std::vector<double> probabilities) {
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  const std::vector<int> drawn = counts(settings, logits);
  double chi_squared = 0;
  int cells = 0;
  for (std::size_t token = 0; token < logits.size(); ++token) {
    const double expected = probabilities[token] / sum * draws;
    if (expected == 0) {
      EXPECT_EQ(drawn[token], 0) << "token " << token;
      continue;
    }
    chi_squared += (drawn[token] - expected) * (drawn[token] - expected) / expected;
    ++cells;
  }
  constexpr double exceeded_by_one_in_ten_thousand[] = {0, 15.14, 18.42, 21.11, 23.51, 25.74, 27.86};  // by degrees of freedom
  ASSERT_GE(cells, 2);
  EXPECT_LT(chi_squared, exceeded_by_one_in_ten_thousand[cells - 1]);
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  for (const float logit : logits) p.push_back(std::exp(logit / temperature));
  return p;
}

const std::vector<float> logits{0.5F, 2, -1, 1.5F, 0, -3, 1};

TEST(Sampler, WithoutTemperatureTakesTheLargestLogitAndOfEqualOnesTheFirst) {
  Sampler sampler({.temperature = 0});
  EXPECT_EQ(sampler.next(logits), 1);
  EXPECT_EQ(sampler.next(std::vector<float>{-5, -2, -2, -7}), 1);
  EXPECT_EQ(sampler.next(std::vector<float>{-std::numeric_limits<float>::infinity(), -2}), 1);
}

TEST(Sampler, DrawsFromTheSoftmaxOfLogitsOverTheTemperature) {
  for (const double temperature : {0.7, 1.0, 3.0})
    expect_distribution({.temperature = temperature, .seed = 5}, logits, softmax(logits, temperature));
}

TEST(Sampler, TopKKeepsTheLargest) {
  std::vector<double> p = softmax(logits, 1);
  for (const std::size_t dropped : {0U, 2U, 4U, 5U}) p[dropped] = 0;
  expect_distribution({.top_k = 3, .seed = 2}, logits, p);
  expect_distribution({.top_k = 100, .seed = 2}, logits, softmax(logits, 1));
}

TEST(Sampler, TopKKeepsWhatEqualsTheLastOfThem) {
  const std::vector<float> equal{1, 1, 1, 0};
  expect_distribution({.top_k = 2, .seed = 3}, equal, {1, 1, 1, 0});
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // Probabilities 0.5, 0.25, 0.15, 0.1.
  const std::vector<float> four{std::log(0.15F), std::log(0.5F), std::log(0.1F), std::log(0.25F)};
  expect_distribution({.top_p = 0.74, .seed = 7}, four, {0, 0.5, 0, 0.25});
  expect_distribution({.top_p = 0.76, .seed = 7}, four, {0.15, 0.5, 0, 0.25});
  const std::vector<int> least = counts({.top_p = 1e-9}, four);
  EXPECT_EQ(least[1], draws) << "at least one is kept";
}

TEST(Sampler, TopPCountsWhatTopKHasKept) {
  const std::vector<float> four{std::log(0.15F), std::log(0.5F), std::log(0.1F), std::log(0.25F)};
  // The first of the two that are kept has two thirds.
  const std::vector<int> drawn = counts({.top_k = 2, .top_p = 0.6}, four);
  EXPECT_EQ(drawn[1], draws);
}

TEST(Sampler, ASeedSaysWhatIsDrawn) {
  const auto sequence = [](std::uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<std::int32_t> drawn;
    for (int i = 0; i < 50; ++i) drawn.push_back(sampler.next(logits));
    return drawn;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
}

TEST(Sampler, RefusesSettingsAndLogitsWithoutMeaning) {
  EXPECT_THAT([] { Sampler({.temperature = -1}); },
              ThrowsMessage<UsageError>(HasSubstr("the temperature is -1.000; it must be at least 0")));
  EXPECT_THAT([] { Sampler({.top_p = 0}); }, ThrowsMessage<UsageError>(HasSubstr("top-p is 0.000; it must be above 0")));
  EXPECT_THAT([] { Sampler({.top_p = 1.5}); }, ThrowsMessage<UsageError>(HasSubstr("top-p is 1.500")));
  EXPECT_THAT([] { Sampler({.top_k = -1}); }, ThrowsMessage<UsageError>(HasSubstr("top-k is -1")));
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    EXPECT_THAT(
        [&] {
          sampler.next(std::vector<float>{0, NAN});
        },
        ThrowsMessage<DataError>(HasSubstr("logit of token 1 is no number")));
    EXPECT_THAT(
        [&] {
          sampler.next(std::vector<float>{INFINITY, 0});
        },
        ThrowsMessage<DataError>(HasSubstr("logit of token 0 is infinite")));
    EXPECT_THAT([&] { sampler.next(std::vector<float>{-INFINITY}); },
                ThrowsMessage<DataError>(HasSubstr("no logit of the model is finite")));
  }
}

}  // namespace
}  // namespace consist
