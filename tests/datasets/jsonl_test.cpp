// Texts in JSON Lines. Conversations: chat_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "datasets/packing/file_list.h"
#include "datasets/tokenizer/tokenizer.h"
#include "tests/datasets/opened.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using packing::shipped_path;
using test::Given;
using test::open;
using test::read;
using test::read_field;
using test::refusal;
using ::testing::AllOf;
using ::testing::HasSubstr;
using tokenizer::Tokenizer;

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  ASSERT_EQ(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  ::gzclose(file);
}

const char* const rows =
    "{\"text\": \"one two\", \"id\": 1}\r\n\n{\"id\": 2, \"text\": \"thr\\u00e9e\\nfour\"}\n  \n{\"text\": \"\"}\n{\"text\": "
    "\"five six\"}";
const std::vector<std::string> texts{"one two",
                                     "thr\xc3\xa9"
                                     "e\nfour",
                                     "five six"};

/// The documents with the end of text behind each.
std::vector<std::vector<std::int32_t>> documents() {
  const Tokenizer tokenizer = Tokenizer::from_file(shipped_path("text/tokenizer.json"));
  std::vector<std::vector<std::int32_t>> all;
  for (const std::string& text : texts) {
    all.push_back(tokenizer.encode(text));
    all.back().push_back(*tokenizer.added_token("<|endoftext|>"));
  }
  return all;
}

std::vector<std::int32_t> joined() {
  std::vector<std::int32_t> all;
  for (const auto& document : documents()) all.insert(all.end(), document.begin(), document.end());
  return all;
}

TEST(JsonlDataset, RowsAreDocuments) {
  const TemporaryFolder folder;
  write_whole(folder / "rows.jsonl", rows);
  const std::vector<std::int32_t> expected = joined();
  const std::size_t sequence = expected.size() - 1;
  const auto dataset =
      open("jsonl", {{"files", folder / "rows.jsonl"}, {"eval-fraction", "0"}}, static_cast<std::int64_t>(sequence));
  EXPECT_EQ(dataset->train_sequences(), 1);
  EXPECT_EQ(read(*dataset, 0, sequence), expected);
  EXPECT_THAT(dataset->fields(), ::testing::IsEmpty());
  EXPECT_THAT(dataset->describe(), AllOf(HasSubstr("1 file, 3 documents"), HasSubstr("<|endoftext|> behind each document")));
  write_whole(folder / "other.jsonl", "{\"body\": \"one two\"}\n{\"body\": \"thr\\u00e9e\\nfour\"}\n{\"body\": \"five six\"}\n");
  const auto other = open("jsonl", {{"files", folder / "other.jsonl"}, {"field", "body"}, {"eval-fraction", "0"}},
                          static_cast<std::int64_t>(sequence));
  EXPECT_EQ(read(*other, 0, sequence), expected);
}

TEST(JsonlDataset, RowsApartHaveTheirBoundariesInFields) {
  const TemporaryFolder folder;
  write_whole(folder / "rows.jsonl", rows);
  const std::size_t sequence = joined().size() - 1;
  const auto dataset = open("jsonl", {{"files", folder / "rows.jsonl"}, {"documents", "apart"}, {"eval-fraction", "0"}},
                            static_cast<std::int64_t>(sequence));
  std::vector<std::int32_t> starts, mask;
  for (const auto& document : documents()) {
    const auto start = static_cast<std::int32_t>(starts.size());
    starts.insert(starts.end(), document.size(), start);
    mask.push_back(0);  // the first token of a document: nothing that is seen foretells it
    mask.insert(mask.end(), document.size() - 1, 1);
  }
  starts.pop_back();
  mask.erase(mask.begin());
  EXPECT_EQ(read_field(*dataset, "document_start", 0, sequence), starts);
  EXPECT_EQ(read_field(*dataset, "loss_mask", 0, sequence), mask);
  // A sequence that begins within a document: its start is the sequence's.
  const auto short_ones = open("jsonl", {{"files", folder / "rows.jsonl"}, {"documents", "apart"}, {"eval-fraction", "0"}}, 3);
  const std::vector<std::int32_t> all = joined();
  for (std::int64_t index = 0; index < short_ones->train_sequences(); ++index) {
    const std::vector<std::int32_t> tokens = read(*short_ones, index, 3);
    const auto at = static_cast<std::size_t>(std::search(all.begin(), all.end(), tokens.begin(), tokens.end()) - all.begin());
    std::vector<std::int32_t> expected;
    for (std::size_t t = at; t < at + 3; ++t) expected.push_back(std::max(starts[t] - static_cast<std::int32_t>(at), 0));
    EXPECT_EQ(read_field(*short_ones, "document_start", index, 3), expected) << at;
  }
}

TEST(JsonlDataset, ReadsWhatGzipHasCompressed) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 60000; ++i)
    text += "{\"text\": \"row " + std::to_string(i * 7919 % 100003) + " of many, longer than a block together\"}\n";
  write_whole(folder / "rows.jsonl", text);
  write_gzip(folder / "rows.jsonl.gz", text);
  const auto plain = open("jsonl", {{"files", folder / "rows.jsonl"}}, 1000),
             packed = open("jsonl", {{"files", folder / "rows.jsonl.gz"}}, 1000);
  ASSERT_EQ(packed->train_sequences(), plain->train_sequences());
  ASSERT_GT(plain->train_sequences(), 400);
  for (std::int64_t index = 0; index < plain->train_sequences(); ++index)
    ASSERT_EQ(read(*packed, index, 1000), read(*plain, index, 1000));
  const std::string whole = read_whole(folder / "rows.jsonl.gz");
  write_whole(folder / "cut.jsonl.gz", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(refusal<DataError>("jsonl", {{"files", folder / "cut.jsonl.gz"}}, 64), HasSubstr("cut.jsonl.gz is cut off"));
  std::string damaged = whole;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
  write_whole(folder / "damaged.jsonl.gz", damaged);
  EXPECT_THAT(refusal<DataError>("jsonl", {{"files", folder / "damaged.jsonl.gz"}}, 64), HasSubstr("damaged.jsonl.gz"));
  write_whole(folder / "plain.jsonl.gz", text);
  EXPECT_THAT(refusal<DataError>("jsonl", {{"files", folder / "plain.jsonl.gz"}}, 64), HasSubstr("is not compressed by gzip"));
}

TEST(JsonlDataset, BadRowsAreNamedByFileAndLine) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text, const Given& more = {}) {
    write_whole(folder / "bad.jsonl", "{\"text\": \"good\"}\n\n" + text + "\n");
    Given given{{"files", folder / "bad.jsonl"}};
    given.insert(more.begin(), more.end());
    return refusal<DataError>("jsonl", given, 4);
  };
  EXPECT_THAT(refused("{\"text\": \"a\"} x"),
              AllOf(HasSubstr("bad.jsonl, line 3 is no valid JSON: column 15"), ::testing::Not(HasSubstr("line 1"))));
  EXPECT_THAT(refused("{\"text\": \"a"), HasSubstr("bad.jsonl, line 3 is no valid JSON: column 12"));
  EXPECT_THAT(refused("{\"text\": \"a\xff\"}"), HasSubstr("bad.jsonl, line 3 is no valid JSON: column 12"));
  EXPECT_THAT(refused("[1, 2]"), HasSubstr("bad.jsonl, line 3 is no JSON object but [1,2]"));
  EXPECT_THAT(
      refused("{\"id\": 3, \"content\": \"a\"}"),
      AllOf(HasSubstr("bad.jsonl, line 3 has no field \"text\"; it has \"id\", \"content\""), HasSubstr("--jsonl.field")));
  EXPECT_THAT(refused("{\"messages\": []}"), HasSubstr("--jsonl.format chat"));
  EXPECT_THAT(refused("{\"text\": 5}"), HasSubstr("bad.jsonl, line 3, field \"text\" is no text but 5"));
  EXPECT_THAT(refused("{\"text\": null}"), HasSubstr("is no text but null"));
  EXPECT_THAT(refused("{\"text\": [{\"role\": \"user\"}]}"), HasSubstr("--jsonl.format chat"));
  EXPECT_THAT(refusal<UsageError>("jsonl", {}, 4), HasSubstr("--jsonl.files is missing"));
  EXPECT_THAT(refusal<UsageError>("jsonl", {{"files", folder / "none.jsonl"}}, 4), HasSubstr("there is no file or folder"));
  EXPECT_THAT(refusal<UsageError>("jsonl", {{"learn", "user,"}}, 4), HasSubstr("--jsonl.learn is 'user,'"));
  EXPECT_THAT(refusal<UsageError>("jsonl", {{"eval-fraction", "0.7"}}, 4), HasSubstr("from 0 to 0.5"));
  EXPECT_THAT(refusal<UsageError>("jsonl", {{"format", "csv"}}, 4), HasSubstr("text"));
}

}  // namespace
}  // namespace consist
