// tokenizer.json files that are damaged or use what is not supported, each refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "datasets/tokenizer/tokenizer.h"
#include "tests/temporary_folder.h"

namespace consist::tokenizer {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

const std::string qwen = read_whole(CONSIST_SOURCE_DIR "/tests/golden/tokenizer/qwen.json");

std::string refusal(const std::string& text) {
  try {
    const Tokenizer tokenizer(parse_tokenizer_json(text));
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

struct Change {
  const char* name;
  const char* pointer;  // into qwen.json
  const char* value;    // JSON; null: the field is removed
  const char* message;
};

std::string changed(const std::string& file, const Change& change) {
  Json json = Json::parse(file);
  const Json::json_pointer pointer(change.pointer);
  if (change.value == nullptr) {
    json[pointer.parent_pointer()].erase(pointer.back());
  } else {
    json[pointer] = Json::parse(change.value);
  }
  return json.dump();
}

class BadTokenizers : public ::testing::TestWithParam<Change> {};

TEST_P(BadTokenizers, AreRefusedByName) {
  EXPECT_THAT(refusal(changed(qwen, GetParam())), HasSubstr(GetParam().message));
}

class BadCharacterTokenizers : public ::testing::TestWithParam<Change> {};

TEST_P(BadCharacterTokenizers, AreRefusedByName) {
  const std::string llama2 = read_whole(CONSIST_SOURCE_DIR "/tests/golden/tokenizer/llama2-metaspace.json");
  EXPECT_THAT(refusal(changed(llama2, GetParam())), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadCharacterTokenizers,
    ::testing::Values(Change{"UnknownMissing", "/model/unk_token", "\"<none>\"", "\"model.unk_token\" is not in model.vocab"},
                      Change{"BytesGiveWay", "/model/byte_fallback", "\"yes\"", "\"model.byte_fallback\" must be"},
                      Change{"MergeOfUnknown", "/model/merges/7", "[\"zzzz\", \"qqqq\"]", "model.merges[7] names a token"},
                      Change{"Scheme", "/pre_tokenizer/prepend_scheme", "\"last\"", "pre_tokenizer.prepend_scheme"},
                      Change{"Contradiction", "/pre_tokenizer/add_prefix_space", "false", "add_prefix_space\" is false"},
                      Change{"NoMark", "/pre_tokenizer/replacement", "\"\"", "\"pre_tokenizer.replacement\" is empty"},
                      Change{"SplitAlone", "/pre_tokenizer",
                             R"({"type": "Split", "pattern": {"Regex": " "}, "behavior": "Isolated", "invert": false})",
                             "has a Split without ByteLevel"},
                      Change{"RegexReplace", "/normalizer", R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": "b"})",
                             "\"normalizer.pattern\" is no String"},
                      Change{"EmptyReplace", "/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "b"})",
                             "\"normalizer.pattern\" is empty"},
                      Change{"Precompiled", "/normalizer", R"({"type": "Precompiled"})", "\"normalizer\" is of type"},
                      Change{"OtherDecoder", "/decoder/type", "\"WordPiece\"", "\"decoder\" is of type"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(BadTokenizerFiles, CharactersThatWouldBeLostAreRefused) {
  Json json = Json::parse(read_whole(CONSIST_SOURCE_DIR "/tests/golden/tokenizer/llama2.json"));
  json["model"]["unk_token"] = nullptr;
  EXPECT_EQ(refusal(json.dump()), "accepted");  // all of them have bytes
  json["model"]["vocab"].erase("<0x7F>");
  EXPECT_THAT(refusal(json.dump()), HasSubstr("no token <0x7F>"));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadTokenizers,
    ::testing::Values(Change{"WordPiece", "/model/type", "\"WordPiece\"", "\"model.type\" is \"WordPiece\""},
                      Change{"NoModel", "/model", nullptr, "\"model\" is missing"},
                      Change{"NoVocabulary", "/model/vocab", nullptr, "\"model.vocab\" is missing"},
                      Change{"NoMerges", "/model/merges", nullptr, "\"model.merges\" is missing"},
                      Change{"MergeOfUnknown", "/model/merges/7", "[\"zzzz\", \"qqqq\"]", "model.merges[7] names a token"},
                      Change{"MergeOfThree", "/model/merges/3", "\"a b c\"", "model.merges[3]"},
                      Change{"MergeOfNumbers", "/model/merges/3", "[1, 2]", "model.merges[3]"},
                      Change{"NegativeId", "/model/vocab/a", "-1", "\"model.vocab\" has the id -1"},
                      Change{"HugeId", "/model/vocab/a", "4294967296", "4294967296"},
                      Change{"IdTwice", "/model/vocab/a", "1", "twice"},
                      Change{"IdNoNumber", "/model/vocab/a", "\"x\"", "model.vocab"},
                      Change{"ByteMissing", "/model/vocab/a", nullptr, "no token for the byte 97"},
                      Change{"Dropout", "/model/dropout", "0.1", "model.dropout"},
                      Change{"ByteFallback", "/model/byte_fallback", "true", "model.byte_fallback"},
                      Change{"Suffix", "/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix"},
                      Change{"Unknown", "/model/unk_token", "\"<unk>\"", "model.unk_token"},
                      Change{"Lowercase", "/normalizer", "{\"type\": \"Lowercase\"}", "\"normalizer\" is of type"},
                      Change{"NoPreTokenizer", "/pre_tokenizer", "null", "\"pre_tokenizer\" is missing"},
                      Change{"Whitespace", "/pre_tokenizer", "{\"type\": \"Whitespace\"}",
                             "\"pre_tokenizer\" is of type \"Whitespace\""},
                      Change{"Removed", "/pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", "behavior"},
                      Change{"Inverted", "/pre_tokenizer/pretokenizers/0/invert", "true", "invert"},
                      Change{"StringPattern", "/pre_tokenizer/pretokenizers/0/pattern", "{\"String\": \" \"}", "pattern"},
                      Change{"OpenGroup", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(a\"", "does not compile"},
                      Change{"Word", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\w+\"", "uses \\w"},
                      Change{"Anchor", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"^a\"", "uses ^"},
                      Change{"Script", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\p{Han}\"", "general category"},
                      Change{"Intersection", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"[a-z&&[b]]\"", "intersects"},
                      Change{"Empty", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"a*\"", "can match nothing"},
                      Change{"Atomic", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(?>a)\"", "unusual kind"},
                      Change{"Lstrip", "/added_tokens/0/lstrip", "true", "added_tokens.lstrip"},
                      Change{"AddedIdOff", "/added_tokens/0/id", "9", "the vocabulary implies"},
                      Change{"AddedEmpty", "/added_tokens/0/content", "\"\"", "empty content"},
                      Change{"AddedTwice", "/added_tokens/1/content", "\"<|endoftext|>\"", "twice"},
                      Change{"Roberta", "/post_processor", "{\"type\": \"RobertaProcessing\"}", "\"post_processor\" is of type"},
                      Change{"Decoder", "/decoder", "{\"type\": \"WordPiece\"}", "\"decoder\" is of type"},
                      Change{"Truncation", "/truncation", "{\"max_length\": 5}", "\"truncation\" is given"}),
    [](const auto& info) { return info.param.name; });

TEST(BadTokenizerFiles, TemplateWithATokenThatDoesNotExist) {
  Json json = Json::parse(read_whole(CONSIST_SOURCE_DIR "/tests/golden/tokenizer/llama3.json"));
  EXPECT_EQ(refusal(json.dump()), "accepted");
  Json& last = json["post_processor"]["processors"].back();
  ASSERT_EQ(last["type"], "TemplateProcessing");
  last["special_tokens"]["<|begin_of_text|>"]["ids"][0] = 99999;
  EXPECT_THAT(refusal(json.dump()), HasSubstr("adds the token 99999, which does not exist"));
  last["special_tokens"].erase("<|begin_of_text|>");
  EXPECT_THAT(refusal(json.dump()), HasSubstr("lacks \"<|begin_of_text|>\""));
  last["single"] = Json::array();
  EXPECT_THAT(refusal(json.dump()), HasSubstr("lacks the text itself"));
}

TEST(BadTokenizerFiles, CutOffAnywhere) {
  for (std::size_t length = 0; length < qwen.size() - 2; length += 97)
    EXPECT_NE(refusal(qwen.substr(0, length)), "accepted") << length;
  EXPECT_EQ(refusal(qwen), "accepted");
}

TEST(BadTokenizerFiles, AreNamed) {
  const TemporaryFolder folder;
  EXPECT_THROW(Tokenizer::from_file(folder / "none.json"), SystemError);
  write_whole(folder / "cut.json", qwen.substr(0, 1000));
  try {
    Tokenizer::from_file(folder / "cut.json");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cut.json"));
  }
}

TEST(BadTokenizerFiles, NestingIsBounded) {
  const std::string deep(100'000, '[');
  for (const char* key : {"model", "pre_tokenizer", "added_tokens", "normalizer", "no_such_key"})
    EXPECT_THAT(refusal("{\"" + std::string(key) + "\": " + deep), HasSubstr("nested deeper")) << key;
  EXPECT_THAT(refusal("{\"added_tokens\": [{\"content\": \"x\", \"id\": " + deep.substr(0, 25) + std::string(25, ']') + "}]}"),
              HasSubstr("has the id [[["));
}

TEST(BadText, InvalidUtf8IsRefusedWithItsOffset) {
  const Tokenizer tokenizer(parse_tokenizer_json(qwen));
  const std::pair<std::string, std::size_t> cases[] = {
      {"ab\xff", 2}, {"\xc3", 0},    {"a\xc0\x80", 1}, {"\xed\xa0\x80", 0}, {"xyz\xf4\x90\x80\x80", 3},
      {"é\x80", 2},  {"\xe2\x82", 0}};
  for (const auto& [text, offset] : cases) {
    try {
      tokenizer.encode(text);
      ADD_FAILURE() << "accepted";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("at byte " + std::to_string(offset) + ";"));
    }
  }
}

TEST(BadText, IdsThatDoNotExistAreRefused) {
  const Tokenizer tokenizer(parse_tokenizer_json(qwen));
  const std::int32_t beyond[] = {tokenizer.vocabulary_size()}, negative[] = {-1};
  EXPECT_THROW(tokenizer.decode(beyond), DataError);
  EXPECT_THROW(tokenizer.decode(negative), DataError);
}

}  // namespace
}  // namespace consist::tokenizer
