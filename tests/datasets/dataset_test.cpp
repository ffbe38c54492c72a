// The dataset plugins as the program loads them.
#include "consist/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "datasets/packing/file_list.h"
#include "datasets/tokenizer/documents.h"
#include "tests/datasets/opened.h"
#include "tests/python.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using packing::shipped_path;
using test::Given;
using test::open;
using test::read;
using test::refusal;
using ::testing::AllOf;
using ::testing::HasSubstr;
using tokenizer::Tokenizer;

TEST(TextDataset, TheShippedCorpusIsReadByDefault) {
  const auto dataset = open("text", {}, 128);
  EXPECT_THAT(dataset->describe(), AllOf(HasSubstr("16 files, 16 documents"), HasSubstr("by the tokenizer that ships")));
  EXPECT_GT(dataset->train_sequences(), 700);
  EXPECT_GT(dataset->eval_sequences(), 30);
  const Tokenizer tokenizer = Tokenizer::from_file(shipped_path("text/tokenizer.json"));
  EXPECT_EQ(tokenizer.vocabulary_size(), 4096);
  std::string corpus;
  for (const std::string& file : packing::list_files(shipped_path("text/corpus"), "corpus")) corpus += read_whole(file);
  for (std::int64_t i = 0; i < 20; ++i) {
    const std::string text = tokenizer.decode(read(*dataset, i, 128));
    EXPECT_NE(corpus.find(text), std::string::npos) << text;
  }
}

TEST(TextDataset, TheShippedCorpusIsWhatItsScriptWrites) {
  CONSIST_NEEDS_PYTHON(python);
  const TemporaryFolder folder;
  const PythonResult result = run_python(python, {CONSIST_SOURCE_DIR "/datasets/text/make_corpus.py", folder.path().string()});
  ASSERT_EQ(result.status, 0) << result.output;
  const auto made = packing::list_files(folder.path().string(), "made"),
             shipped = packing::list_files(shipped_path("text/corpus"), "shipped");
  ASSERT_EQ(made.size(), shipped.size());
  for (std::size_t i = 0; i < made.size(); ++i) EXPECT_TRUE(read_whole(made[i]) == read_whole(shipped[i])) << shipped[i];
}

TEST(TextDataset, DocumentsAreFilesOrLines) {
  const TemporaryFolder folder;
  write_whole(folder / "a.txt", "one two\r\n\nthree\nfour");
  write_whole(folder / "b.txt", "five\n");
  const Tokenizer tokenizer = Tokenizer::from_file(shipped_path("text/tokenizer.json"));
  const std::int32_t end = *tokenizer.added_token("<|endoftext|>");
  const auto expect = [&](const std::string& documents, std::vector<std::string> texts) {
    std::vector<std::int32_t> expected;
    for (const std::string& text : texts) {
      for (std::int32_t id : tokenizer.encode(text)) expected.push_back(id);
      expected.push_back(end);
    }
    const Given options{{"files", folder / "a.txt" + "," + folder / "b.txt"}, {"documents", documents}, {"eval-fraction", "0"}};
    const auto dataset = open("text", options, static_cast<std::int64_t>(expected.size()) - 1);
    EXPECT_EQ(dataset->train_sequences(), 1);
    EXPECT_EQ(dataset->eval_sequences(), 0);
    EXPECT_EQ(read(*dataset, 0, expected.size() - 1), expected);
  };
  expect("file", {"one two\r\n\nthree\nfour", "five\n"});
  expect("line", {"one two", "three", "four", "five"});
}

/// A tokenizer whose end of text has a name of its own, in a folder for the files beside it.
class OwnEndOfText : public ::testing::Test {
 protected:
  OwnEndOfText() {
    nlohmann::json json = nlohmann::json::parse(read_whole(shipped_path("text/tokenizer.json")));
    const std::string renamed = "<end of it>";
    json["added_tokens"][0]["content"] = renamed;
    json["model"]["vocab"][renamed] = json["model"]["vocab"]["<|endoftext|>"];
    json["model"]["vocab"].erase("<|endoftext|>");
    write_whole(folder_ / "tokenizer.json", json.dump());
    write_whole(folder_ / "text.txt", "one two three four five");
  }
  std::shared_ptr<Dataset> opened() const {
    return open("text", {{"files", folder_ / "text.txt"}, {"tokenizer", folder_.path()}, {"eval-fraction", "0"}}, 4);
  }
  void expect_found() const {
    const auto dataset = opened();
    EXPECT_THAT(dataset->describe(), HasSubstr("<end of it> behind each document"));
    EXPECT_THAT(dataset->warnings(), ::testing::IsEmpty());
  }
  TemporaryFolder folder_;
};

TEST_F(OwnEndOfText, IsFoundInTheFilesBesideTheTokenizer) {
  const auto declared = [&](const std::string& file, const std::string& text) {
    SCOPED_TRACE(file + " " + text);
    write_whole(folder_ / file, text);
    expect_found();
    std::filesystem::remove(folder_ / file);
  };
  declared("tokenizer_config.json", R"({"eos_token": "<end of it>"})");
  declared("tokenizer_config.json", R"({"eos_token": {"content": "<end of it>", "lstrip": false}})");
  declared("special_tokens_map.json", R"({"eos_token": "<end of it>"})");
  declared("generation_config.json", R"({"eos_token_id": [0, 7]})");
  declared("config.json", R"({"eos_token_id": 0})");
}

TEST_F(OwnEndOfText, ThatNobodyDeclaresIsWarnedOf) {
  EXPECT_THAT(opened()->warnings(), ::testing::ElementsAre(AllOf(HasSubstr("--text.separator auto"), HasSubstr("end-of-text"))));
  EXPECT_THAT(opened()->describe(), HasSubstr("without separators"));
  for (const char* text : {R"({"eos_token": "<none>"})", R"({"eos_token": null})", R"({"eos_token": 7})"}) {
    write_whole(folder_ / "tokenizer_config.json", text);
    write_whole(folder_ / "config.json", R"({"eos_token_id": 4096})");
    EXPECT_THAT(opened()->warnings(), ::testing::SizeIs(text[14] == '7' ? 0 : 1)) << text;
  }
  write_whole(folder_ / "tokenizer_config.json", "{");
  EXPECT_THROW(opened(), DataError);
}

/// Published models round their vocabularies up; what is beyond that is another tokenizer's.
TEST(TextDataset, AVocabularyThatIsNotTheTokenizersIsWarnedOf) {
  const TemporaryFolder folder;
  write_whole(folder / "text.txt", "one two three four five");
  const Given options{{"files", folder / "text.txt"}, {"eval-fraction", "0"}};
  EXPECT_THAT(open("text", options, 4, 4096)->warnings(), ::testing::IsEmpty());
  EXPECT_THAT(open("text", options, 4, 4177)->warnings(), ::testing::IsEmpty());  // 2%
  EXPECT_THAT(open("text", options, 4, 32000)->warnings(),
              ::testing::ElementsAre(AllOf(HasSubstr("vocabulary has 32000 tokens"), HasSubstr("has 4096"))));
  EXPECT_THAT(open("text", options, 4, 4095)->warnings(), ::testing::ElementsAre(HasSubstr("beyond would be refused")));
}

TEST(TextDataset, LinesAcrossBlocksOfReading) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; text.size() < (9 << 20); ++i)
    text += std::string(static_cast<std::size_t>(i * 37 % 900), "ab c"[i % 4]) + std::to_string(i) + "\n";
  text +=
      std::string(5 << 20, 'x') + "\nlast\xff";  // a line longer than a block, and a bad byte whose place must be told rightly
  write_whole(folder / "a.txt", text);
  const Tokenizer tokenizer = Tokenizer::from_file(shipped_path("text/tokenizer.json"));
  std::string together;
  try {
    tokenize_files(tokenizer, {.files = {folder / "a.txt"}, .documents = tokenizer::DocumentKind::line, .separator = 0},
                   [&](std::span<const std::int32_t> ids) { together += tokenizer.decode(ids) + "\n"; });
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.txt is not valid UTF-8 at byte " + std::to_string(text.size() - 1)));
  }
  EXPECT_TRUE(together == text.substr(0, text.size() - 5));
}

TEST(TextDataset, EvaluationFiles) {
  const TemporaryFolder folder;
  write_whole(folder / "train.txt", "aaaaaaaaaa bbbbbbbbbbbbb ccccccccccccc ddddddddddddd");
  write_whole(folder / "eval.txt", "eeeeeeeeeee ffffffffffffff gggggggggg hhhhhhhhhh");
  const auto dataset = open("text", {{"files", folder / "train.txt"}, {"eval-files", folder / "eval.txt"}}, 4);
  ASSERT_GE(dataset->eval_sequences(), 1);
  std::vector<std::int32_t> tokens(5);
  dataset->read_eval(0, tokens);
  EXPECT_THAT(Tokenizer::from_file(shipped_path("text/tokenizer.json")).decode(tokens), HasSubstr("ee"));
}

TEST(TextDataset, BadInputIsRefused) {
  const TemporaryFolder folder;
  write_whole(folder / "bad.txt",
              "good\nba\xff"
              "d");
  write_whole(folder / "empty.txt", "");
  write_whole(folder / "short.txt", "short");
  write_whole(folder / "cut.json", read_whole(shipped_path("text/tokenizer.json")).substr(0, 5000));
  std::filesystem::create_directory(folder / "none");
  for (const char* documents : {"file", "line"}) {
    EXPECT_THAT(refusal<DataError>("text", {{"files", folder / "bad.txt"}, {"documents", documents}}, 4),
                HasSubstr("bad.txt is not valid UTF-8 at byte 7"));
  }
  EXPECT_THAT(refusal<UsageError>("text", {{"files", folder / "missing.txt"}}, 4),
              HasSubstr("--text.files: there is no file or folder"));
  EXPECT_THAT(refusal<UsageError>("text", {{"files", folder / "none"}}, 4), HasSubstr("has no files"));
  EXPECT_THAT(refusal<DataError>("text", {{"files", folder / "empty.txt"}}, 4), HasSubstr("has 0 tokens"));
  EXPECT_THAT(refusal<DataError>("text", {{"files", folder / "short.txt"}}, 512), HasSubstr("shorter --sequence"));
  EXPECT_THAT(refusal<DataError>("text", {{"tokenizer", folder / "cut.json"}}, 4), HasSubstr("cut.json"));
  EXPECT_THAT(refusal<SystemError>("text", {{"tokenizer", folder / "missing.json"}}, 4), HasSubstr("missing.json"));
  EXPECT_THAT(refusal<UsageError>("text", {{"separator", "<s>"}}, 4), HasSubstr("no added token '<s>'"));
  EXPECT_THAT(refusal<UsageError>("text", {}, 4, 4000), HasSubstr("vocabulary has 4000"));
  EXPECT_THAT(refusal<UsageError>("text", {{"eval-fraction", "0.9"}}, 4), HasSubstr("eval-fraction"));
}

/// Runs the program with everything quoted; its exit status.
int consist(const std::string& arguments) {
  const int status = std::system((CONSIST_BINARY_DIR "/bin/consist " + arguments + " >/dev/null 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(TokensDataset, GivesWhatTheTextGives) {
  const TemporaryFolder folder;
  const std::string corpus = shipped_path("text/corpus"), tokens = folder / "corpus.tokens";
  ASSERT_EQ(consist("tokenize --documents line --output '" + tokens + "' '" + corpus + "'"), 0);
  const auto from_text = open("text", {{"documents", "line"}}, 64, 4096, 7),
             from_tokens = open("tokens", {{"files", tokens}}, 64, 4096, 7);
  ASSERT_EQ(from_tokens->train_sequences(), from_text->train_sequences());
  ASSERT_EQ(from_tokens->eval_sequences(), from_text->eval_sequences());
  for (std::int64_t i = 0; i < from_text->train_sequences() + 50; ++i)
    ASSERT_EQ(read(*from_tokens, i, 64), read(*from_text, i, 64));
  std::vector<std::int32_t> a(65), b(65);
  for (std::int64_t i = 0; i < from_text->eval_sequences(); ++i) {
    from_text->read_eval(i, a);
    from_tokens->read_eval(i, b);
    ASSERT_EQ(a, b);
  }
  EXPECT_THAT(refusal<DataError>("tokens", {{"files", tokens}}, 64, 1000), HasSubstr("vocabulary has 1000"));
  const std::string whole = read_whole(tokens);
  write_whole(folder / "cut.tokens", whole.substr(0, whole.size() - 3));
  EXPECT_THAT(refusal<DataError>("tokens", {{"files", folder / "cut.tokens"}}, 64), HasSubstr("cut off"));
  EXPECT_THAT(refusal<UsageError>("tokens", {}, 64), HasSubstr("--tokens.files is missing"));
}

TEST(TokenizeCommand, RefusesAndLeavesNothing) {
  const TemporaryFolder folder;
  const std::string out = " --output '" + folder / "out" + "' ";
  write_whole(folder / "bad.txt", "\xff");
  write_whole(folder / "empty.txt", "");
  write_whole(folder / "good.txt", "good");
  EXPECT_EQ(consist("tokenize" + out + "'" + folder / "bad.txt" + "'"), 1);
  EXPECT_EQ(consist("tokenize" + out + "'" + folder / "empty.txt" + "'"), 1);
  EXPECT_EQ(consist("tokenize" + out + "'" + folder / "missing.txt" + "'"), 2);
  EXPECT_EQ(consist("tokenize" + out), 2);
  EXPECT_EQ(consist("tokenize '" + folder / "good.txt" + "'"), 2);
  EXPECT_EQ(consist("tokenize --documents word" + out + "'" + folder / "good.txt" + "'"), 2);
  EXPECT_EQ(consist("tokenize --output '" + folder / "no/such/folder" + "' '" + folder / "good.txt" + "'"), 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3);
  EXPECT_EQ(consist("tokenize" + out + "'" + folder / "good.txt" + "'"), 0);
  EXPECT_EQ(consist("tokenize" + out + "'" + folder / "good.txt" + "'"), 2);
  EXPECT_EQ(consist("tokenize --overwrite" + out + "'" + folder / "good.txt" + "'"), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 4);
}

TEST(SyntheticDataset, IsFixedByTheSeedAndStaysInTheVocabulary) {
  const auto one = open("synthetic", {}, 32, 50, 1), same = open("synthetic", {}, 32, 50, 1),
             other = open("synthetic", {}, 32, 50, 2);
  int differing = 0;
  for (std::int64_t i = 0; i < 50; ++i) {
    const auto tokens = read(*one, i, 32);
    EXPECT_EQ(tokens, read(*same, i, 32));
    differing += tokens != read(*other, i, 32);
    for (std::int32_t id : tokens) EXPECT_TRUE(id >= 0 && id < 50);
  }
  EXPECT_GT(differing, 45);
}

}  // namespace
}  // namespace consist
