// Every dataset gives the same tokens for the same index, in any order and from any thread; each sequence once per epoch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "consist/error.h"
#include "tests/conformance/parts/parts.h"

namespace consist {
namespace {

using testing::Candidate;
using testing::host;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t sequence = 32, vocabulary = 200'000;

class DatasetConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  void SetUp() override {
    try {
      dataset_ = open(1);
    } catch (const UsageError& error) {
      GTEST_SKIP() << "it cannot be opened with these options: " << error.what();
    }
  }
  std::shared_ptr<Dataset> open(std::uint64_t seed) const {
    auto made = host().make<Dataset>("dataset", GetParam().name, GetParam().options);
    made->open({.sequence_length = sequence, .vocabulary = vocabulary, .seed = seed});
    return made;
  }
  static Tokens train(const Dataset& dataset, std::int64_t index) {
    Tokens tokens(sequence + 1, -7);
    dataset.read_train(index, tokens);
    return tokens;
  }
  static Tokens eval(const Dataset& dataset, std::int64_t index) {
    Tokens tokens(sequence + 1, -7);
    dataset.read_eval(index, tokens);
    return tokens;
  }
  std::int64_t some() const { return std::min<std::int64_t>(dataset_->train_sequences(), 50); }

  std::shared_ptr<Dataset> dataset_;
};

TEST_P(DatasetConformance, HasSequencesAndSaysWhatItIs) {
  EXPECT_GE(dataset_->train_sequences(), 1);
  EXPECT_GE(dataset_->eval_sequences(), 0);
  EXPECT_FALSE(dataset_->describe().empty());
  EXPECT_EQ(dataset_->describe().find('\n'), std::string::npos) << "one line";
}

// Tokens outside of the vocabulary are refused by the host, see GuardedParts.
TEST_P(DatasetConformance, AnotherObjectReadsTheSameInAnyOrder) {
  const auto another = open(1);
  for (std::int64_t index = some() - 1; index >= 0; --index) EXPECT_EQ(train(*another, index), train(*dataset_, index)) << index;
  for (std::int64_t index = std::min<std::int64_t>(dataset_->eval_sequences(), 50) - 1; index >= 0; --index)
    EXPECT_EQ(eval(*another, index), eval(*dataset_, index)) << index;
  EXPECT_EQ(train(*another, dataset_->train_sequences() + 1), train(*dataset_, dataset_->train_sequences() + 1)) << "endless";
}

TEST_P(DatasetConformance, SeveralThreadsReadWhatOneReads) {
  std::vector<Tokens> expected;
  for (std::int64_t index = 0; index < some(); ++index) expected.push_back(train(*dataset_, index));
  std::vector<std::thread> threads;
  std::vector<std::vector<Tokens>> found(4);
  for (auto& mine : found) {
    threads.emplace_back([&] {
      for (std::int64_t index = 0; index < some(); ++index) mine.push_back(train(*dataset_, index));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : found) EXPECT_EQ(mine, expected);
}

TEST_P(DatasetConformance, EachEpochHasTheSameSequencesInAnOrderOfItsOwn) {
  const std::int64_t count = dataset_->train_sequences();
  if (count > 20'000) GTEST_SKIP() << "an epoch of " << count << " sequences is too long to read here";
  std::vector<std::vector<Tokens>> epochs(2);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    for (std::int64_t index = 0; index < count; ++index)
      epochs[static_cast<std::size_t>(epoch)].push_back(train(*dataset_, epoch * count + index));
  }
  if (count > 10) {
    EXPECT_NE(epochs[0], epochs[1]);
  }
  for (auto& epoch : epochs) std::sort(epoch.begin(), epoch.end());
  EXPECT_EQ(epochs[0], epochs[1]);
}

TEST_P(DatasetConformance, TheSeedDecidesTheOrder) {
  if (dataset_->train_sequences() <= 10) GTEST_SKIP() << "a few sequences have few orders";
  const auto another = open(2);
  bool differs = false;
  for (std::int64_t index = 0; index < some(); ++index) differs |= train(*another, index) != train(*dataset_, index);
  EXPECT_TRUE(differs);
}

INSTANTIATE_TEST_SUITE_P(Datasets, DatasetConformance,
                         ::testing::ValuesIn(testing::candidates("dataset", "CONSIST_CONFORMANCE_DATASETS")),
                         [](const auto& info) { return testing::test_name(info); });

}  // namespace
}  // namespace consist
