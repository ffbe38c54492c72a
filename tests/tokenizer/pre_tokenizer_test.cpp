// Splitting text at the matches of an expression: the same pieces however far the expression reads, and bounded work.
#include "datasets/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>

#include <ctime>

#include "consist/error.h"

namespace consist::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::string> pieces_of(const RegexSplit& split, const std::string& text) {
  std::vector<std::string_view> pieces;
  split.split(text, pieces);
  return {pieces.begin(), pieces.end()};
}

TEST(RegexSplit, PiecesOfAnyLengthAreWhole) {
  const RegexSplit gpt2(gpt2_pattern);
  for (std::size_t n = 1; n<300; n += n> 50 && n < 70 ? 1 : 7) {
    const std::string word(n, 'a'), spaces(n, ' ');
    EXPECT_THAT(pieces_of(gpt2, word + "'ll" + word), ElementsAre(word, "'ll", word)) << n;
    EXPECT_THAT(pieces_of(gpt2, word + " " + spaces + "b"), ElementsAre(word, spaces, " b")) << n << ": it looks at what follows";
    EXPECT_THAT(pieces_of(gpt2, word + spaces), ElementsAre(word, spaces)) << n;
    std::string umlauts;
    for (std::size_t i = 0; i < n; ++i) umlauts += "\xc3\xa4";
    EXPECT_THAT(pieces_of(gpt2, "x " + umlauts + "1"), ElementsAre("x", " " + umlauts, "1")) << n << ": characters of two bytes";
    // Nothing matches for a long time, then something does.
    EXPECT_THAT(pieces_of(RegexSplit("b+"), word + "bb" + word), ElementsAre(word, "bb", word)) << n;
    EXPECT_THAT(pieces_of(RegexSplit("(?<=a)b"), word + "bb"), ElementsAre(word, "b", "b")) << n << ": it looks back";
    EXPECT_THAT(pieces_of(RegexSplit("a+(?=b)|c"), word + "bc" + word), ElementsAre(word, "b", "c", word)) << n;
    EXPECT_THAT(pieces_of(RegexSplit("(?:aa|a)+b|a"), word + "b"), ElementsAre(word + "b")) << n << ": it backtracks";
  }
  EXPECT_THAT(pieces_of(gpt2, std::string(1'000'000, 'a')), ElementsAre(std::string(1'000'000, 'a')));
}

/// One took more than a minute of 200 KB: each of its matches reads to the end of the text.
TEST(RegexSplit, WorkOnATextIsBounded) {
  const std::clock_t begin = std::clock();
  const std::string text(200'000, 'a');
  for (const char* pattern : {"[^x]+x|.", "(?:a+)+b|.", "(?:a|aa)+b|.", "a(?=a*b)|a", "(?:a{0,200}){0,200}b|a"}) {
    EXPECT_THAT([&] { pieces_of(RegexSplit(pattern), text); },
                ThrowsMessage<DataError>(HasSubstr("the pre-tokenizer's expression")))
        << pattern;
  }
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20) << "of the processor's seconds";
  EXPECT_THAT([] { RegexSplit(std::string(20'000, 'a')); }, ThrowsMessage<DataError>(HasSubstr("20000 bytes")));
}

}  // namespace
}  // namespace consist::tokenizer
