// Several datasets as one.
#include "core/plan/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "consist/error.h"

namespace consist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_datasets(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DatasetChoices, WeightsAreRatios) {
  const auto weights = [](const std::string& text) {
    std::vector<std::int64_t> all;
    for (const DatasetChoice& choice : parse_datasets(text)) all.push_back(choice.weight);
    return all;
  };
  EXPECT_EQ(parse_datasets("text"), (std::vector<DatasetChoice>{{"text", "text", 1}}));
  EXPECT_EQ(parse_datasets("jsonl@a=0.7+jsonl@b-2=.3"),
            (std::vector<DatasetChoice>{{"jsonl@a", "jsonl", 7}, {"jsonl@b-2", "jsonl", 3}}));
  EXPECT_THAT(weights("a=0.7+b=0.3"), ElementsAre(7, 3));
  EXPECT_THAT(weights("a=70+b=20+c=10"), ElementsAre(7, 2, 1));
  EXPECT_THAT(weights("a=0.125+b=1"), ElementsAre(1, 8));
  EXPECT_THAT(weights("a=1.0+b=1"), ElementsAre(1, 1));
  for (const char* text : {"", "a=1+", "a=1+=1", "a@=1+b=1", "a@x.y=1+b=1", "a+b=1", "a=1", "a=1+a=2", "a=0+b=1", "a=-1+b=1",
                           "a=1e3+b=1", "a=x+b=1", "a=1+b=", "a=.+b=1", "a=1.2345678+b=1"})
    EXPECT_THAT(refusal(text), ::testing::AllOf(HasSubstr("--dataset"), HasSubstr("write for example"))) << text;
  EXPECT_THAT(refusal("a=0.333333+b=0.666666+c=0.000001"), HasSubstr("every 1000000 sequences"));
  EXPECT_THAT(refusal("jsonl=1+jsonl=2"), HasSubstr("'jsonl' stands there twice"));
}

TEST(TurnsOfParts, EachHasItsShareOfEveryStretch) {
  const std::vector<std::vector<std::int64_t>> all{{1},
                                                   {7, 3},
                                                   {1, 1},
                                                   {1, 1, 1},
                                                   {1, 999},
                                                   {5, 5, 1},
                                                   {3, 1, 9},
                                                   {33, 33, 34},
                                                   {1, 2, 3, 4, 5},
                                                   {100, 1, 1, 1},
                                                   {977, 13, 7, 3},
                                                   {2, 2, 2, 1, 1, 1, 90},
                                                   {50000, 49999, 1}};
  for (const std::vector<std::int64_t>& weights : all) {
    const TurnsOfParts turns(weights);
    const std::int64_t period = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
    ASSERT_EQ(turns.period(), period);
    std::vector<std::int64_t> counts(weights.size(), 0);
    for (std::int64_t n = 0; n < std::min<std::int64_t>(2 * period + 3, 100'050); ++n) {
      const TurnsOfParts::Place place = turns(n);
      ASSERT_EQ(place.index, counts[place.part]) << n;
      ++counts[place.part];
      ASSERT_EQ(turns.until(place.part, counts[place.part]), n + 1);
      for (std::size_t k = 0; k < weights.size(); ++k)
        ASSERT_LT(std::abs(counts[k] * period - weights[k] * (n + 1)), std::max<std::int64_t>(period, 1)) << n << ' ' << k;
      if (n % 97 == 0 || n + 1 == period) {
        ASSERT_EQ(turns.of_first(n + 1), counts);
      }
    }
    EXPECT_EQ(turns.of_first(period), weights);
    EXPECT_EQ(turns(7 * period).index, 7 * weights[turns(0).part]);
  }
  EXPECT_EQ(TurnsOfParts({1, 3}).of_first(0), (std::vector<std::int64_t>{0, 0}));
}

/// Every token of training sequence i is first + i, of evaluation sequence i first + 500 + i; fields likewise.
class Numbers final : public Dataset {
 public:
  Numbers(std::int32_t first, std::int64_t train, std::int64_t eval, std::vector<Field> fields)
      : first_(first), train_(train), eval_(eval), fields_(std::move(fields)) {}
  void open(const DatasetRequest& request) override { sequence_ = request.sequence_length; }
  std::int64_t train_sequences() const override { return train_; }
  std::int64_t eval_sequences() const override { return eval_; }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    if (index == 40) throw DataError("it is broken");
    std::fill(tokens.begin(), tokens.end(), first_ + static_cast<std::int32_t>(index));
  }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override {
    std::fill(tokens.begin(), tokens.end(), first_ + 500 + static_cast<std::int32_t>(index));
  }
  std::vector<Field> fields() const override { return fields_; }
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    for (const FieldValues& value : values)
      std::fill_n(static_cast<std::int32_t*>(value.data), sequence_, first_ + static_cast<std::int32_t>(index) + 7);
  }
  std::string describe() const override { return "numbers from " + std::to_string(first_); }

 private:
  std::int32_t first_;
  std::int64_t train_, eval_, sequence_ = 0;
  std::vector<Field> fields_;
};

const Field mask{"loss_mask", DType::i32}, start{"document_start", DType::i32};

std::unique_ptr<Mixture> mixed(const std::string& text, const std::vector<std::shared_ptr<Dataset>>& datasets) {
  std::vector<Mixture::Part> parts;
  const std::vector<DatasetChoice> choices = parse_datasets(text);
  for (std::size_t k = 0; k < choices.size(); ++k) parts.push_back({choices[k], datasets[k]});
  auto mixture = std::make_unique<Mixture>(std::move(parts));
  mixture->open({.sequence_length = 4, .vocabulary = 100'000, .seed = 0});
  return mixture;
}

std::int32_t first_token(const Dataset& dataset, std::int64_t index) {
  std::vector<std::int32_t> tokens(5);
  dataset.read_train(index, tokens);
  return tokens[0];
}

TEST(Mixture, EachPartReadsWhatItReadsAlone) {
  const auto mixture = mixed("a=3+b=1", {std::make_shared<Numbers>(1000, 10, 2, std::vector<Field>{}),
                                         std::make_shared<Numbers>(2000, 5, 9, std::vector<Field>{})});
  std::int32_t next[] = {1000, 2000};
  for (std::int64_t index = 0; index < 50; ++index) {
    const std::int32_t token = first_token(*mixture, index);
    EXPECT_EQ(token, next[token >= 2000 ? 1 : 0]++);
  }
  EXPECT_EQ(next[0] - 1000 + next[1] - 2000, 50);
  EXPECT_NEAR(next[1] - 2000, 12.5, 1);
  // A pass ends with the fifth sequence of b, when a has begun its second pass.
  EXPECT_EQ(first_token(*mixture, mixture->train_sequences() - 1), 2004);
  EXPECT_GT(mixture->train_sequences(), 16);
  // Evaluation: a has two sequences, so that the third turn of a ends it.
  std::vector<std::int32_t> tokens(5);
  int of_a = 0;
  for (std::int64_t index = 0; index < mixture->eval_sequences(); ++index) {
    mixture->read_eval(index, tokens);
    of_a += tokens[0] < 2000 ? 1 : 0;
  }
  EXPECT_EQ(of_a, 2);
  EXPECT_EQ(mixture->describe(), "a mixture of 75.0% numbers from 1000; 25.0% numbers from 2000");
  EXPECT_EQ(mixture->text_of_first(8), "a 6 sequences, 24 tokens (75.0%), b 2 sequences, 8 tokens (25.0%)");
  try {
    for (std::int64_t index = 0; index < 80; ++index) first_token(*mixture, index);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "'a', sequence 40: it is broken");
  }
}

TEST(Mixture, FieldsThatAPartLacksSayNothing) {
  const auto mixture = mixed("a=1+b=1", {std::make_shared<Numbers>(1000, 10, 0, std::vector<Field>{mask}),
                                         std::make_shared<Numbers>(2000, 10, 0, std::vector<Field>{start})});
  EXPECT_THAT(mixture->fields(), ElementsAre(mask, start));
  EXPECT_EQ(mixture->eval_sequences(), 0);
  for (std::int64_t index = 0; index < 6; ++index) {
    std::vector<std::int32_t> masks(4, -1), starts(4, -1);
    const FieldValues values[] = {{mask, masks.data()}, {start, starts.data()}};
    mixture->read_train_fields(index, values);
    const std::int32_t token = first_token(*mixture, index);
    EXPECT_EQ(masks, std::vector<std::int32_t>(4, token < 2000 ? token + 7 : 1));
    EXPECT_EQ(starts, std::vector<std::int32_t>(4, token < 2000 ? 0 : token + 7));
  }
  try {
    mixed("a=1+b=1", {std::make_shared<Numbers>(1, 9, 0, std::vector<Field>{{"weight", DType::f32}}),
                      std::make_shared<Numbers>(2, 9, 0, std::vector<Field>{})});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("'weight'"), HasSubstr("'b' has not")));
  }
}

}  // namespace
}  // namespace consist
