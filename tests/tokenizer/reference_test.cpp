// The ids of 12,000 lines of mixed text against the reference library (tests/golden/make_tokenizer_reference.py).
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "datasets/tokenizer/tokenizer.h"
#include "datasets/tokenizer/unicode.h"
#include "tests/temporary_folder.h"

namespace consist::tokenizer {
namespace {

const std::string folder = CONSIST_SOURCE_DIR "/tests/golden/tokenizer/";

const std::vector<std::string>& lines() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> lines;
    std::ifstream file(folder + "lines.jsonl", std::ios::binary);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line).get<std::string>());
    return lines;
  }();
  return all;
}

struct Reference {
  std::uint16_t count;
  std::uint64_t hash;
};

std::vector<Reference> references(const std::string& name) {
  std::ifstream file(folder + name + ".ref", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  constexpr std::size_t each = 10;
  std::vector<Reference> all(bytes.size() / each);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::memcpy(&all[i].count, &bytes[i * each], 2);
    std::memcpy(&all[i].hash, &bytes[i * each + 2], 8);
  }
  return all;
}

std::uint64_t fnv1a(const std::vector<std::int32_t>& ids) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (std::int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (static_cast<std::uint32_t>(id) >> shift & 0xff)) * 0x100000001b3ULL;
  }
  return hash;
}

class Tokenizers : public ::testing::TestWithParam<const char*> {};

TEST_P(Tokenizers, GiveTheIdsOfTheReference) {
  const Tokenizer tokenizer = Tokenizer::from_file(folder + GetParam() + ".json");
  const std::vector<Reference> expected = references(GetParam());
  ASSERT_GE(lines().size(), 10'000U);
  ASSERT_GE(expected.size(), 2'500U);
  ASSERT_LE(expected.size(), lines().size());
  std::size_t wrong = 0, tokens = 0;
  for (int pass = 0; pass < 2; ++pass) {  // the second one from the cache
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::vector<std::int32_t> ids = tokenizer.encode(lines()[i]);
      tokens += ids.size();
      if (ids.size() == expected[i].count && fnv1a(ids) == expected[i].hash) continue;
      if (++wrong <= 10)
        ADD_FAILURE() << "line " << i << ": " << ids.size() << " ids, expected " << expected[i].count << ": "
                      << nlohmann::json(lines()[i]).dump();
    }
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(tokens, 10 * expected.size());
}

TEST_P(Tokenizers, DecodeToTheTextThatWasEncoded) {
  const std::string name = GetParam();
  const Tokenizer tokenizer = Tokenizer::from_file(folder + name + ".json");
  if (name == "characters") return;  // what is unknown is lost
  std::size_t compared = 0;
  for (const std::string& line : lines()) {
    if (line.find("<|") != std::string::npos || line.find("\xe2\x96\x81") != std::string::npos ||
        line.find("_call>") != std::string::npos || line.find("<think>") != std::string::npos || name == "gpt2-prefix-space")
      continue;  // special tokens are left out, the space is added, a mark is a space
    if (name == "llama2-metaspace" && line.starts_with(' ')) continue;  // none is added before it, and one is taken away
    ++compared;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(line)), name == "qwen" ? to_nfc(line) : line);
  }
  if (name != "gpt2-prefix-space") {
    EXPECT_GT(compared, 5000U);
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, Tokenizers,
                         ::testing::Values("llama3", "qwen", "gpt2", "gpt2-prefix-space", "deepseek", "o200k", "llama2",
                                           "llama2-metaspace", "characters"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

/// The characters of `all` that `one_character` matches.
std::vector<std::int32_t> members(const std::string& one_character, const std::vector<char32_t>& all) {
  std::string text;  // each between \1 and \2, so that a match is a piece of two characters, and nothing else is
  for (const char32_t c : all) {
    text += '\1';
    append_utf8(text, c);
    text += '\2';
  }
  std::vector<std::string_view> pieces;
  RegexSplit(one_character + "\2").split(text, pieces);
  std::vector<std::int32_t> found;
  for (const std::string_view piece : pieces) {
    std::size_t length = 0;
    const char32_t c = read_utf8(piece, 0, length);
    if (piece.size() == length + 1 && piece.back() == '\2') found.push_back(static_cast<std::int32_t>(c));
  }
  return found;
}

/// Unicode 16, as the reference has it, whatever version PCRE2 is of.
TEST(UnicodeClasses, AreThoseOfTheReference) {
  std::ifstream file(folder + "unicode.json");
  const nlohmann::json expected = nlohmann::json::parse(file);
  std::vector<char32_t> all;  // CODE_POINTS of the script, without \2, which is of no class
  for (const auto& [first, last] : std::initializer_list<std::pair<char32_t, char32_t>>{
           {0, 0xd7ff}, {0xe000, 0x1ffff}, {0x2b700, 0x2b75f}, {0x2ebe0, 0x2ee6f}, {0x31340, 0x323bf}}) {
    for (char32_t c = first; c <= last; ++c) {
      if (c != 2) all.push_back(c);
    }
  }
  ASSERT_EQ(expected.size(), 31U);
  for (const auto& [name, reference] : expected.items()) {
    const std::vector<std::int32_t> in_class = members("\\p{" + name + "}", all);
    EXPECT_EQ(in_class.size(), reference[0].get<std::size_t>()) << name;
    EXPECT_EQ(fnv1a(in_class), reference[1].get<std::uint64_t>()) << name;
    EXPECT_EQ(members("[\\p{" + name + "}]", all), in_class) << name;
    if (name != "Mn" && name != "P" && name != "So") continue;
    for (const std::string& other : {"\\P{" + name + "}", "[^\\p{" + name + "}]"}) {
      EXPECT_EQ(members(other, all).size() + in_class.size(), all.size()) << other;
    }
  }
}

/// Llama 2's documents are one piece each; cutting them at marks, which makes them fast, must not change an id.
TEST(CharacterVocabularies, AreCutOnlyWhereNoMergeCrosses) {
  const std::string json = read_whole(folder + "llama2.json");
  EXPECT_TRUE(parse_tokenizer_json(json).bpe->words_are_apart());
  nlohmann::json crossing = nlohmann::json::parse(json);
  crossing["model"]["vocab"]["e\u2581t"] = crossing["model"]["vocab"].size();
  crossing["model"]["merges"].push_back("e \u2581t");
  EXPECT_FALSE(parse_tokenizer_json(crossing.dump()).bpe->words_are_apart());
}

}  // namespace
}  // namespace consist::tokenizer
