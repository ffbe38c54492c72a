// Text of unknown origin on a terminal.
#include "consist/text.h"

#include <gtest/gtest.h>

namespace consist {
namespace {

TEST(Printable, TerminalsAreGivenNothingToObey) {
  EXPECT_EQ(printable("plain text,\n\ttwo lines: \xc3\xa4 \xe6\xbc\xa2 \xf0\x9f\x9a\x82"),
            "plain text,\n\ttwo lines: \xc3\xa4 \xe6\xbc\xa2 \xf0\x9f\x9a\x82");
  EXPECT_EQ(printable("\x1b[2J\x1b]0;title\x07 \r\b\x7f"), "\\u001b[2J\\u001b]0;title\\u0007 \\u000d\\u0008\\u007f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\u0000");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\u009b2J")
      << "the control sequence introducer in two bytes";
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b\xe2\x81\xa6\xe2\x80\xa8"),
            "a\\u202eb\\u2066\\u2028");
}

TEST(Printable, BytesThatAreNoUtf8AreShownAsSuch) {
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3") << "no lead byte, and one that is cut off";
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b") << "an overlong form of escape";
  EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a surrogate pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
  EXPECT_EQ(printable("\x9b"), "\\x9b");
}

TEST(Printable, NamesAreQuotedOnOneLineAndCut) {
  EXPECT_EQ(in_quotes("model.norm"), "\"model.norm\"");
  EXPECT_EQ(in_quotes("a\"b\\c\n\t\x1b"), R"("a\"b\\c\n\t\u001b")");
  EXPECT_EQ(in_quotes("abcdef", 3), "\"abc\"...");
  EXPECT_EQ(in_quotes("ab\xc3\xa4"
                      "f",
                      3),
            "\"ab\"...")
      << "not within a character";
  EXPECT_EQ(in_quotes(std::string(8, '\x9b'), 4).substr(0, 5), "\"\\x9b") << "bytes that are none";
}

}  // namespace
}  // namespace consist
