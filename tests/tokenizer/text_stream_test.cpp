// Text of tokens that come one by one: whole characters, and what is no UTF-8.
#include "datasets/tokenizer/text_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "consist/error.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::tokenizer {
namespace {

const std::string streamed_files = CONSIST_SOURCE_DIR "/tests/golden/tokenizer/";
const std::string lost = "\xef\xbf\xbd";  // U+FFFD

class TextStreams : public ::testing::TestWithParam<const char*> {};

TEST_P(TextStreams, GiveWholeCharactersAndTogetherWhatDecodeGives) {
  const Tokenizer tokenizer = Tokenizer::from_file(streamed_files + GetParam() + ".json");
  std::ifstream file(streamed_files + "lines.jsonl", std::ios::binary);
  int kept_back = 0, count = 0;
  for (std::string line; std::getline(file, line) && count < 1500; ++count) {
    const std::vector<std::int32_t> ids = tokenizer.encode(nlohmann::json::parse(line).get<std::string>());
    TextStream stream(tokenizer);
    std::string text;
    for (const std::int32_t id : ids) {
      const std::string piece = stream.push(id);
      ASSERT_EQ(invalid_utf8(piece), std::string::npos) << line;
      kept_back += piece.empty() && !tokenizer.bytes_of(id).empty() ? 1 : 0;
      text += piece;
    }
    ASSERT_EQ(stream.finish(), "") << line;
    // decode() takes away the space that encode() puts first where a vocabulary of characters has it.
    const std::string decoded = tokenizer.decode(ids);
    ASSERT_TRUE(text == decoded || text == " " + decoded) << line;
  }
  EXPECT_EQ(count, 1500);
  EXPECT_GT(kept_back, 100) << "lines with characters of several tokens";
}
INSTANTIATE_TEST_SUITE_P(All, TextStreams, ::testing::Values("gpt2", "llama3", "qwen", "llama2"));

/// Text of bytes that come in pieces, each byte as a token of its own.
std::vector<std::string> streamed(const std::string& bytes) {
  static const Tokenizer tokenizer = Tokenizer::from_file(streamed_files + "gpt2.json");
  TextStream stream(tokenizer);
  std::vector<std::string> pieces;
  for (const char byte : bytes) pieces.push_back(stream.push(tokenizer.token(std::string(1, byte)).value()));
  pieces.push_back(stream.finish());
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(TextStream, KeepsBackWhatMayBecomeACharacter) {
  EXPECT_EQ(streamed("a\xc3\xa9"), (Pieces{"a", "", "\xc3\xa9", ""}));
  EXPECT_EQ(streamed("\xf0\x9f\x98\x80!"), (Pieces{"", "", "", "\xf0\x9f\x98\x80", "!", ""}));
}

// As Python's decoder with errors="replace" does.
TEST(TextStream, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(streamed("\xf0\x9f\x98"), (Pieces{"", "", "", lost}));
  EXPECT_EQ(streamed("\xe2("), (Pieces{"", lost + "(", ""}));
  EXPECT_EQ(streamed("\xff"
                     "a"),
            (Pieces{lost, "a", ""}));
  EXPECT_EQ(streamed("\xc0\xaf"), (Pieces{lost, lost, ""})) << "overlong";
  EXPECT_EQ(streamed("\xed\xa0\x80"), (Pieces{"", lost + lost, lost, ""})) << "a surrogate";
  EXPECT_EQ(streamed("\xf0\x80"), (Pieces{"", lost + lost, ""})) << "overlong";
  EXPECT_EQ(streamed("\xf4\x90"), (Pieces{"", lost + lost, ""})) << "beyond Unicode";
  EXPECT_EQ(streamed("\xe2\x82\xe2\x82\xac"), (Pieces{"", "", lost, "", "\xe2\x82\xac", ""}))
      << "a character that another cuts off";
}

TEST(TextStream, LeavesSpecialTokensOutAndRefusesUnknownOnes) {
  const Tokenizer tokenizer = Tokenizer::from_file(streamed_files + "qwen.json");
  TextStream stream(tokenizer);
  EXPECT_EQ(stream.push(tokenizer.added_token("<|endoftext|>").value()), "");
  EXPECT_THROW(stream.push(-1), DataError);
  EXPECT_THROW(stream.push(tokenizer.vocabulary_size()), DataError);
}

}  // namespace
}  // namespace consist::tokenizer
