// The share of a dataset of rows that is kept for evaluation: whole rows, which no training sequence has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "datasets/packing/file_list.h"
#include "datasets/tokenizer/tokenizer.h"
#include "tests/datasets/opened.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using test::Given;
using test::open;
using test::refusal;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

class EvaluationRows : public ::testing::Test {
 protected:
  /// Writes rows of different lengths and keeps the tokens of each.
  EvaluationRows() {
    const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::from_file(packing::shipped_path("text/tokenizer.json"));
    std::string file;
    for (int i = 0; i < 40; ++i) {
      std::string text = "row " + std::to_string(i);
      for (int word = 0; word < i % 7; ++word) text += " and word " + std::to_string(word * i);
      file += "{\"text\": \"" + text + "\"}\n";
      rows_.push_back(tokenizer.encode(text));
      rows_.back().push_back(*tokenizer.added_token("<|endoftext|>"));
    }
    write_whole(path_, file);
  }
  std::shared_ptr<Dataset> opened(const Given& more, std::int64_t sequence = 8) const {
    Given given{{"files", path_}};
    given.insert(more.begin(), more.end());
    return open("jsonl", given, sequence);
  }
  Tokens joined(std::size_t begin, std::size_t end) const {
    Tokens all;
    for (std::size_t row = begin; row < end; ++row) all.insert(all.end(), rows_[row].begin(), rows_[row].end());
    return all;
  }
  /// The sequences of a stream, each with the target of its last token.
  static std::vector<Tokens> sequences(const Tokens& stream, std::size_t length = 8) {
    std::vector<Tokens> all;
    for (std::size_t at = 0; at + length < stream.size(); at += length)
      all.emplace_back(stream.begin() + static_cast<std::ptrdiff_t>(at),
                       stream.begin() + static_cast<std::ptrdiff_t>(at + length + 1));
    return all;
  }
  static std::vector<Tokens> trained(const Dataset& dataset, std::size_t length = 8) {
    std::vector<Tokens> all;
    for (std::int64_t i = 0; i < dataset.train_sequences(); ++i) all.push_back(test::read(dataset, i, length));
    std::sort(all.begin(), all.end());
    return all;
  }
  static std::vector<Tokens> evaluated(const Dataset& dataset, std::size_t length = 8) {
    std::vector<Tokens> all(static_cast<std::size_t>(dataset.eval_sequences()), Tokens(length + 1));
    for (std::size_t i = 0; i < all.size(); ++i) dataset.read_eval(static_cast<std::int64_t>(i), all[i]);
    return all;
  }
  static std::vector<Tokens> sorted(std::vector<Tokens> all) {
    std::sort(all.begin(), all.end());
    return all;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "rows.jsonl";
  std::vector<Tokens> rows_;
};

TEST_F(EvaluationRows, NoRowIsInTrainingAndInEvaluation) {
  const auto dataset = opened({{"eval-fraction", "0.1"}});
  EXPECT_EQ(trained(*dataset), sorted(sequences(joined(0, 36)))) << "in the order of the file, but for the last four rows";
  EXPECT_EQ(evaluated(*dataset), sequences(joined(36, 40)));
  EXPECT_THAT(dataset->describe(),
              HasSubstr("1 file, 40 documents (the last 4 for evaluation), " + std::to_string(joined(0, 40).size()) + " tokens"));
  const auto all = opened({{"eval-fraction", "0"}});
  EXPECT_EQ(trained(*all), sorted(sequences(joined(0, 40))));
  EXPECT_EQ(all->eval_sequences(), 0);
}

TEST_F(EvaluationRows, AreAsManyAsFillASequence) {
  const auto dataset = opened({{"eval-fraction", "0.01"}}, 64);
  std::size_t first = 39;
  while (joined(first, 40).size() < 65) --first;
  ASSERT_LT(first, 39U) << "one row is not enough";
  EXPECT_EQ(trained(*dataset, 64), sorted(sequences(joined(0, first), 64)));
  EXPECT_EQ(evaluated(*dataset, 64), sequences(joined(first, 40), 64));
}

TEST_F(EvaluationRows, HaveBoundariesAndMasksOfTheirOwn) {
  const auto dataset = opened({{"eval-fraction", "0.1"}, {"documents", "apart"}});
  Tokens starts, mask;
  for (std::size_t row = 36; row < 40; ++row) {
    starts.insert(starts.end(), rows_[row].size(), static_cast<std::int32_t>(starts.size()));
    mask.push_back(0);
    mask.insert(mask.end(), rows_[row].size() - 1, 1);
  }
  for (std::int64_t index = 0; index < dataset->eval_sequences(); ++index) {
    Tokens found_starts(8, -7), found_mask(8, -7), expected_starts, expected_mask;
    const FieldValues values[] = {{{"document_start", DType::i32}, found_starts.data()},
                                  {{"loss_mask", DType::i32}, found_mask.data()}};
    dataset->read_eval_fields(index, values);
    const auto at = static_cast<std::size_t>(index * 8);
    for (std::size_t t = at; t < at + 8; ++t) {
      expected_starts.push_back(std::max(starts[t] - static_cast<std::int32_t>(at), 0));
      expected_mask.push_back(mask[t + 1]);
    }
    EXPECT_EQ(found_starts, expected_starts) << index;
    EXPECT_EQ(found_mask, expected_mask) << index;
  }
}

/// As all datasets of rows did it once, which runs of that time go on with.
TEST_F(EvaluationRows, MayBeSequencesInstead) {
  const auto dataset = opened({{"eval-fraction", "0.1"}, {"eval-split", "sequences"}});
  std::vector<Tokens> all = sequences(joined(0, 40));
  const auto kept = static_cast<std::ptrdiff_t>(std::lround(0.1 * static_cast<double>(all.size())));
  EXPECT_EQ(evaluated(*dataset), std::vector<Tokens>(all.end() - kept, all.end()));
  EXPECT_EQ(trained(*dataset), sorted({all.begin(), all.end() - kept}));
}

TEST_F(EvaluationRows, ThatLeaveNoneToTrainOnAreRefused) {
  write_whole(folder_ / "one.jsonl", R"({"text": "a single row with enough words for several sequences of two"})");
  const Given one{{"files", folder_ / "one.jsonl"}};
  EXPECT_THAT(refusal<DataError>("jsonl", one, 2), AllOf(HasSubstr("one.jsonl has 1 row"), HasSubstr("--jsonl.eval-fraction 0"),
                                                         HasSubstr("--jsonl.eval-split sequences")));
  Given divided = one;
  divided["eval-split"] = "sequences";
  EXPECT_EQ(open("jsonl", divided, 2)->eval_sequences(), 1);
  const std::string few =
      refusal<DataError>("jsonl", {{"files", path_}}, static_cast<std::int64_t>(joined(0, 40).size()) * 2 / 3);
  EXPECT_THAT(few, HasSubstr("rows.jsonl without the "));
  EXPECT_THAT(few, HasSubstr("that are kept for evaluation has "));
}

}  // namespace
}  // namespace consist
