// The ids of 12,000 lines of mixed text against the reference library (tests/golden/make_tokenizer_reference.py).
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "datasets/tokenizer/tokenizer.h"
#include "datasets/tokenizer/unicode.h"

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

class Tokenizers : public testing::TestWithParam<const char*> {};

TEST_P(Tokenizers, GiveTheIdsOfTheReference) {
  const Tokenizer tokenizer = Tokenizer::from_file(folder + GetParam() + ".json");
  const std::vector<Reference> expected = references(GetParam());
  ASSERT_GE(lines().size(), 10'000U);
  ASSERT_EQ(expected.size(), lines().size());
  std::size_t wrong = 0, tokens = 0;
  for (int pass = 0; pass < 2; ++pass) {  // the second one from the cache
    for (std::size_t i = 0; i < lines().size(); ++i) {
      const std::vector<std::int32_t> ids = tokenizer.encode(lines()[i]);
      tokens += ids.size();
      if (ids.size() == expected[i].count && fnv1a(ids) == expected[i].hash) continue;
      if (++wrong <= 10)
        ADD_FAILURE() << "line " << i << ": " << ids.size() << " ids, expected " << expected[i].count << ": "
                      << nlohmann::json(lines()[i]).dump();
    }
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(tokens, 10 * lines().size());
}

TEST_P(Tokenizers, DecodeToTheTextThatWasEncoded) {
  const std::string name = GetParam();
  const Tokenizer tokenizer = Tokenizer::from_file(folder + name + ".json");
  std::size_t compared = 0;
  for (const std::string& line : lines()) {
    if (line.find("<|") != std::string::npos || line.find("_call>") != std::string::npos ||
        line.find("<think>") != std::string::npos || name == "gpt2-prefix-space")
      continue;  // special tokens are left out, the space is added
    ++compared;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(line)), name == "qwen" ? to_nfc(line) : line);
  }
  if (name != "gpt2-prefix-space") {
    EXPECT_GT(compared, 5000U);
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, Tokenizers, testing::Values("llama3", "qwen", "gpt2", "gpt2-prefix-space"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace consist::tokenizer
