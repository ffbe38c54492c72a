// Windows of a token stream and their order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "consist/error.h"
#include "datasets/packing/packed_stream.h"
#include "datasets/packing/permutation.h"

namespace consist::packing {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<TokensInMemory> counting(std::int64_t tokens) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(tokens));
  std::iota(all.begin(), all.end(), 0);
  return std::make_shared<TokensInMemory>(all);
}

std::vector<std::int32_t> train(const PackedStream& stream, std::int64_t index, std::size_t length) {
  std::vector<std::int32_t> tokens(length + 1, -1);
  stream.read_train(index, tokens);
  return tokens;
}

TEST(Permutation, IsOneForEverySizeAndKey) {
  for (std::int64_t n = 1; n <= 300; ++n) {
    const Permutation order(n, static_cast<std::uint64_t>(n) * 7);
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t to = order(i);
      ASSERT_TRUE(to >= 0 && to < n);
      seen.insert(to);
    }
    ASSERT_EQ(static_cast<std::int64_t>(seen.size()), n);
  }
  EXPECT_THROW(Permutation(0, 1), Error);
}

TEST(Permutation, SpreadsNeighboursAndStaysInHugeRanges) {
  const std::int64_t n = 100'000;
  const Permutation order(n, 3);
  double distance = 0;
  for (std::int64_t i = 0; i + 1 < n; ++i) distance += static_cast<double>(std::abs(order(i) - order(i + 1)));
  EXPECT_NEAR(distance / static_cast<double>(n - 1), static_cast<double>(n) / 3,
              static_cast<double>(n) / 100);  // of two random places
  const std::int64_t huge = (std::int64_t{1} << 62) - 5;
  const Permutation far(huge, 9);
  for (std::int64_t i : {std::int64_t{0}, std::int64_t{1}, huge / 2, huge - 1}) EXPECT_TRUE(far(i) >= 0 && far(i) < huge);
}

TEST(PackedStream, TakesEveryWindowOncePerEpochAndEveryEpochAnew) {
  const PackedStream stream(counting(1001), {.sequence_length = 10, .vocabulary = 2000, .seed = 5}, 0.1, "it");
  ASSERT_EQ(stream.train_sequences(), 90);
  ASSERT_EQ(stream.eval_sequences(), 10);
  std::vector<std::vector<std::int32_t>> orders(2);
  for (std::int64_t i = 0; i < 180; ++i) {
    const auto tokens = train(stream, i, 10);
    for (std::size_t k = 0; k < tokens.size(); ++k) ASSERT_EQ(tokens[k], tokens[0] + static_cast<std::int32_t>(k));
    ASSERT_EQ(tokens[0] % 10, 0);
    orders[static_cast<std::size_t>(i / 90)].push_back(tokens[0]);
  }
  EXPECT_NE(orders[0], orders[1]);
  for (auto order : orders) {
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), 90U);
    EXPECT_LT(*std::max_element(order.begin(), order.end()), 900);  // the rest is for evaluation
  }
  std::vector<std::int32_t> eval(11);
  for (std::int64_t i = 0; i < 10; ++i) {
    stream.read_eval(i, eval);
    EXPECT_EQ(eval[0], 900 + i * 10);
  }
  EXPECT_EQ(eval[10], 1000);
  EXPECT_THROW(stream.read_eval(10, eval), Error);
}

TEST(PackedStream, OrderFollowsFromTheSeedAlone) {
  const DatasetRequest request{.sequence_length = 4, .vocabulary = 1000, .seed = 1};
  const PackedStream one(counting(401), request, 0, "it"), same(counting(401), request, 0, "it");
  DatasetRequest changed = request;
  changed.seed = 2;
  const PackedStream other(counting(401), changed, 0, "it");
  int differing = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(train(one, i, 4), train(same, i, 4));
    differing += train(one, i, 4) != train(other, i, 4);
  }
  EXPECT_GT(differing, 80);
}

TEST(PackedStream, TooFewTokensAreRefused) {
  const DatasetRequest request{.sequence_length = 8, .vocabulary = 1000, .seed = 0};
  EXPECT_EQ(PackedStream(counting(9), request, 0, "it").train_sequences(), 1);
  for (std::int64_t tokens : {0, 1, 8}) EXPECT_THROW(PackedStream(counting(tokens), request, 0, "it"), DataError) << tokens;
  try {
    const PackedStream stream(counting(12), request, 0.05, "the text of a.txt");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("the text of a.txt has 12 tokens"), HasSubstr("needs 17")));
  }
  EXPECT_THROW(PackedStream(counting(9), counting(3), request, "it", "eval"), DataError);
  EXPECT_EQ(PackedStream(counting(9), counting(17), request, "it", "eval").eval_sequences(), 2);
}

TEST(PackedStream, TokensOutsideOfTheVocabularyAreRefusedWithTheirPlace) {
  const PackedStream stream(counting(9), {.sequence_length = 8, .vocabulary = 6, .seed = 0}, 0, "it");
  try {
    train(stream, 0, 8);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("token 6 of the dataset is 6"), HasSubstr("vocabulary has 6")));
  }
}

}  // namespace
}  // namespace consist::packing
