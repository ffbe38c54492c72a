// Token files: written, read, damaged.
#include "datasets/packing/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "consist/error.h"
#include "tests/temporary_folder.h"

namespace consist::packing {
namespace {

using ::testing::HasSubstr;

std::vector<std::int32_t> some_tokens(std::int32_t vocabulary, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i)
    tokens[i] = static_cast<std::int32_t>((i * 7919 + 13) % static_cast<std::size_t>(vocabulary));
  return tokens;
}

void write(const std::string& path, std::uint32_t vocabulary, const std::vector<std::int32_t>& tokens) {
  TokenFileWriter writer(path, {.vocabulary = vocabulary, .separator = 3, .tokenizer_sha256 = std::string(64, 'a')});
  writer.write(std::span(tokens).first(tokens.size() / 2));
  writer.write(std::span(tokens).subspan(tokens.size() / 2));
  writer.commit();
}

std::string refusal(const std::string& path, TokenFileFormat format = TokenFileFormat::header) {
  try {
    const TokenFile file(path, format);
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

class TokenFiles_ : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(TokenFiles_, ComeBackAsTheyWere) {
  const TemporaryFolder folder;
  const std::vector<std::int32_t> tokens = some_tokens(static_cast<std::int32_t>(GetParam()), 1001);
  write(folder / "a.tokens", GetParam(), tokens);
  const TokenFile file(folder / "a.tokens", TokenFileFormat::header);
  EXPECT_EQ(file.header().width, GetParam() <= 65536 ? 2 : 4);
  EXPECT_EQ(file.header().vocabulary, GetParam());
  EXPECT_EQ(file.header().largest, static_cast<std::uint32_t>(*std::max_element(tokens.begin(), tokens.end())));
  EXPECT_EQ(file.header().separator, 3U);
  EXPECT_EQ(file.header().tokenizer_sha256, std::string(64, 'a'));
  ASSERT_EQ(file.size(), 1001);
  std::vector<std::int32_t> read(1001), part(10);
  file.read(0, read);
  EXPECT_EQ(read, tokens);
  file.read(991, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), tokens.begin() + 991));
  EXPECT_THROW(file.read(992, part), DataError);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenFiles_, ::testing::Values(300U, 65536U, 65537U, 151936U));

TEST(TokenFile, BareIdsOfOtherPrograms) {
  const TemporaryFolder folder;
  write_whole(folder / "a", std::string("\x01\x02\x03\x04\xff\xff\xff\x7f", 8));
  const TokenFile narrow(folder / "a", TokenFileFormat::u16), wide(folder / "a", TokenFileFormat::u32);
  std::vector<std::int32_t> read(4), read_wide(2);
  narrow.read(0, read);
  EXPECT_THAT(read, ::testing::ElementsAre(0x201, 0x403, 0xffff, 0x7fff));
  wide.read(0, read_wide);
  EXPECT_THAT(read_wide, ::testing::ElementsAre(0x4030201, 0x7fffffff));
  write_whole(folder / "odd", "abcde");
  EXPECT_THAT(refusal(folder / "odd", TokenFileFormat::u16), HasSubstr("no whole tokens"));
  write_whole(folder / "large", std::string("\0\0\0\x80", 4));
  EXPECT_THROW(TokenFile(folder / "large", TokenFileFormat::u32).read(0, std::span(read_wide).first(1)), DataError);
}

TEST(TokenFile, SeveralReadAsOne) {
  const TemporaryFolder folder;
  const std::vector<std::int32_t> tokens = some_tokens(500, 40);
  std::vector<TokenFile> files;
  for (std::size_t i = 0, sizes[] = {7, 0, 1, 32}, at = 0; i < 4; at += sizes[i++]) {
    const std::string path = folder / std::to_string(i);
    write(path, 500,
          {tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.begin() + static_cast<std::ptrdiff_t>(at + sizes[i])});
    files.emplace_back(path, TokenFileFormat::header);
  }
  const TokenFiles all(std::move(files));
  ASSERT_EQ(all.size(), 40);
  for (std::size_t first = 0; first <= 40; ++first) {
    for (std::size_t count = 0; first + count <= 40; ++count) {
      std::vector<std::int32_t> read(count);
      all.read(static_cast<std::int64_t>(first), read);
      ASSERT_TRUE(std::equal(read.begin(), read.end(), tokens.begin() + static_cast<std::ptrdiff_t>(first)))
          << first << " " << count;
    }
  }
}

TEST(TokenFile, CutOffAnywhereIsRefused) {
  const TemporaryFolder folder;
  write(folder / "a", 500, some_tokens(500, 20));
  const std::string whole = read_whole(folder / "a");
  ASSERT_EQ(whole.size(), 128U + 40U);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_whole(folder / "cut", whole.substr(0, length));
    EXPECT_NE(refusal(folder / "cut"), "accepted") << length;
  }
  write_whole(folder / "long", whole + "x");
  EXPECT_THAT(refusal(folder / "long"), HasSubstr("20 tokens of 2 bytes, but 41 bytes follow"));
  EXPECT_THROW(TokenFile(folder / "none", TokenFileFormat::header), SystemError);
  EXPECT_THROW(TokenFile(folder.path().string(), TokenFileFormat::header), SystemError);
}

TEST(TokenFile, WrongHeadersAreRefused) {
  const TemporaryFolder folder;
  write(folder / "a", 500, some_tokens(500, 20));
  const std::string whole = read_whole(folder / "a");
  const auto changed = [&](std::size_t offset, char value) {
    std::string bytes = whole;
    bytes[offset] = value;
    write_whole(folder / "b", bytes);
    return refusal(folder / "b");
  };
  EXPECT_THAT(changed(0, 'X'), HasSubstr("does not begin with CONSTOK"));
  EXPECT_THAT(changed(8, 2), HasSubstr("version is 2"));
  EXPECT_THAT(changed(12, 3), HasSubstr("3 bytes per token"));
  EXPECT_THAT(changed(12, 4), HasSubstr("cut off or damaged"));
  EXPECT_THAT(changed(16, 21), HasSubstr("cut off or damaged"));
  EXPECT_THAT(changed(23, '\x80'), HasSubstr("cut off or damaged"));  // 2^63 tokens and 20
  EXPECT_THAT(changed(26, 1), HasSubstr("largest id"));
}

TEST(TokenFileWriter, LeavesNothingBehindUnlessItIsDone) {
  const TemporaryFolder folder;
  const std::vector<std::int32_t> tokens{1, 2, 3};
  {
    TokenFileWriter writer(folder / "a", {.vocabulary = 10});
    writer.write(tokens);
    EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  TokenFileWriter writer(folder / "a", {.vocabulary = 3});
  EXPECT_THROW(writer.write(tokens), Error);
}

}  // namespace
}  // namespace consist::packing
