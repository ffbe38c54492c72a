// Pairs of conversations: the sequence that holds both, what of it is compared, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/packing/file_list.h"
#include "datasets/tokenizer/tokenizer.h"
#include "tests/datasets/opened.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using test::Given;
using test::open;
using test::read;
using test::read_field;
using test::refusal;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using tokenizer::Tokenizer;

constexpr std::size_t sequence = 127;

const char* const prompt = R"({"role": "user", "content": "one and one"})";
const char* const good = R"({"role": "assistant", "content": "two, as ever"})";
const char* const bad = R"({"role": "assistant", "content": "five"})";

std::string row(const std::string& text) {
  return "{" + text + "}\n";
}
std::string whole_pair() {
  return row(R"("chosen": [)" + std::string(prompt) + ", " + good + R"(], "rejected": [)" + prompt + ", " + bad + "]");
}

std::vector<float> preferences(const Dataset& dataset, std::int64_t index) {
  std::vector<float> values(sequence, -7);
  const FieldValues field{{"preference", DType::f32}, values.data()};
  dataset.read_train_fields(index, {&field, 1});
  return values;
}

class PreferencesDataset : public ::testing::Test {
 protected:
  std::string file(const std::string& text) const {
    write_whole(folder_ / "pairs.jsonl", text);
    return folder_ / "pairs.jsonl";
  }
  std::shared_ptr<Dataset> opened(const std::string& text, const Given& more = {}) const {
    Given given{{"files", file(text)}, {"template", "chatml"}, {"eval-fraction", "0"}};
    for (const auto& [name, value] : more) given[name] = value;
    return open("preferences", given, sequence);
  }
  std::string refused(const std::string& text, std::int64_t length = sequence) const {
    return refusal<DataError>("preferences", {{"files", file(text)}, {"template", "chatml"}, {"eval-fraction", "0"}}, length);
  }
  /// The text of the targets that have this preference.
  std::string words(const Dataset& dataset, float preference) const {
    const std::vector<std::int32_t> tokens = read(dataset, 0, sequence);
    const std::vector<float> values = preferences(dataset, 0);
    std::vector<std::int32_t> ids;
    for (std::size_t t = 0; t < sequence; ++t) {
      if (values[t] == preference) ids.push_back(tokens[t + 1]);
    }
    return shipped_.decode(ids);
  }

  const Tokenizer shipped_ = Tokenizer::from_file(packing::shipped_path("text/tokenizer.json"));
  const TemporaryFolder folder_;
};

TEST_F(PreferencesDataset, ASequenceHoldsBothConversations) {
  const auto dataset = opened(whole_pair());
  const std::vector<std::int32_t> tokens = read(*dataset, 0, sequence);
  const std::string text = shipped_.decode(tokens);
  const std::string begin = "<|im_start|>user\none and one<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_THAT(text, HasSubstr(begin + "two, as ever<|im_end|>\n" + begin + "five<|im_end|>\n"));
  EXPECT_THAT(words(*dataset, 1), HasSubstr("two, as ever<|im_end|>"));
  EXPECT_THAT(words(*dataset, -1), HasSubstr("five<|im_end|>"));
  EXPECT_THAT(words(*dataset, 1) + words(*dataset, -1), ::testing::Not(AllOf(HasSubstr("one"), HasSubstr("user"))));
  // Three documents: the two conversations, and what fills the sequence.
  const std::vector<std::int32_t> starts = read_field(*dataset, "document_start", 0, sequence);
  std::vector<std::int32_t> different = starts;
  different.erase(std::unique(different.begin(), different.end()), different.end());
  ASSERT_EQ(different.size(), 3U);
  const auto rejected = static_cast<std::size_t>(different[1]), end = static_cast<std::size_t>(different[2]);
  EXPECT_EQ(shipped_.decode({tokens.begin(), tokens.begin() + different[1]}), begin + "two, as ever<|im_end|>\n");
  const std::vector<float> values = preferences(*dataset, 0);
  EXPECT_EQ(values[rejected - 1], 0) << "the first word of the rejected conversation is foretold by nothing";
  EXPECT_THAT(std::vector<float>(values.begin() + static_cast<std::ptrdiff_t>(end) - 1, values.end()), Each(0.0F));
}

TEST_F(PreferencesDataset, APromptMayStandByItself) {
  const std::vector<std::int32_t> whole = read(*opened(whole_pair()), 0, sequence);
  const std::string apart = row(R"("prompt": [)" + std::string(prompt) + R"(], "chosen": [)" + good + R"(], "rejected": [)" +
                                bad + "]"),
                    as_text = row(R"("prompt": "one and one", )" + whole_pair().substr(1, whole_pair().size() - 3));
  EXPECT_EQ(read(*opened(apart), 0, sequence), whole);
  EXPECT_EQ(read(*opened(as_text), 0, sequence), whole);
}

TEST_F(PreferencesDataset, TheLastPairsAreForEvaluation) {
  std::string many;
  for (int k = 0; k < 10; ++k) many += whole_pair();
  const auto dataset = opened(many, {{"eval-fraction", "0.2"}});
  EXPECT_EQ(dataset->train_sequences(), 8);
  EXPECT_EQ(dataset->eval_sequences(), 2);
  EXPECT_THAT(dataset->describe(), HasSubstr("10 pairs (the last 2 for evaluation)"));
}

TEST_F(PreferencesDataset, LongPairsAreRefusedOrLeftOutWithAWarning) {
  std::string words;
  for (int k = 0; k < 100; ++k) words += "again and ";
  const std::string longer = row(R"("chosen": [)" + std::string(prompt) + R"(, {"role": "assistant", "content": ")" + words +
                                 R"("}], "rejected": [)" + prompt + ", " + bad + "]");
  EXPECT_THAT(refused(whole_pair() + longer),
              AllOf(HasSubstr("line 2"), HasSubstr("more than --sequence 127"), HasSubstr("--preferences.long skip")));
  const auto dataset = opened(whole_pair() + longer, {{"long", "skip"}});
  EXPECT_EQ(dataset->train_sequences(), 1);
  EXPECT_THAT(dataset->warnings(), ::testing::Contains(HasSubstr("1 pair of 2")));
  EXPECT_THAT(refusal<DataError>("preferences", {{"files", file(longer)}, {"template", "chatml"}, {"long", "skip"}}, sequence),
              HasSubstr("0 pairs that can be read here, of which none are left to train on"));
}

TEST_F(PreferencesDataset, WhatIsNoPairIsRefusedByLineAndField) {
  EXPECT_THAT(refused(row(R"("chosen": [)" + std::string(prompt) + ", " + good + "]")),
              HasSubstr("line 1 has no field \"rejected\""));
  EXPECT_THAT(refused(row(R"("chosen": "two", "rejected": "five")")), HasSubstr("field \"chosen\" is no list of messages but"));
  EXPECT_THAT(refused(row(R"("chosen": [)" + std::string(prompt) + R"(], "rejected": [)" + prompt + ", " + bad + "]")),
              HasSubstr("has no words of the assistant"));
  EXPECT_THAT(refused(row(R"("tools": [{"name": "sum"}], )" + whole_pair().substr(1, whole_pair().size() - 3))),
              HasSubstr("has \"tools\""));
}

}  // namespace
}  // namespace consist
