// JSON from outside: bounded, linear, and named where it is wrong.
#include "consist/json_input.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

void expect_refused(const std::string& text, const JsonRules& rules, const std::string& says) {
  EXPECT_THAT([&] { parse_json(text, "the file", rules); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("the file "), HasSubstr(says), Not(HasSubstr("\x1b")))))
      << text.substr(0, 100);
}

TEST(JsonInput, ValuesAreThoseOfTheLibrary) {
  const std::string text =
      R"({"a": [1, -2, 3.5, 1e3, {"b": []}, [[]], "\u00e4\n"], "c": {}, "d": null, "e": true, "f": 18446744073709551615})";
  EXPECT_EQ(parse_json(text, "it"), json::parse(text));
  EXPECT_EQ(parse_json("3", "it"), json(3));
  EXPECT_EQ(parse_json("[[1], [2, [3]], {}]", "it"), json::parse("[[1], [2, [3]], {}]"));
  EXPECT_EQ(parse_json("\xef\xbb\xbf{}", "it"), json::object()) << "behind a byte-order mark";
}

TEST(JsonInput, ErrorsNameFileAndPosition) {
  expect_refused("{\"a\": 1,\n \"b\" 2}", {}, "no valid JSON: parse error at line 2, column 6");
  expect_refused("", {}, "no valid JSON");
  expect_refused("{} x", {}, "line 1, column 4");
  expect_refused("[1e999]", {}, "no valid JSON");
  expect_refused("[\"\x1b[2J\"]", {}, "no valid JSON");
  expect_refused("\x1b[2J", {}, "no valid JSON");
  expect_refused("[\"\xff\"]", {}, "no valid JSON");
}

TEST(JsonInput, DepthIsBounded) {
  const std::string deep(100'000, '[');
  expect_refused(deep, {}, "nested deeper than the 32 levels");
  expect_refused("{\"a\": {\"b\": " + deep, {}, "at \"a.b\"");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"x\":";
  expect_refused(objects, {.most_depth = 2}, "at \"x.x\"");
  EXPECT_NO_THROW(parse_json("[[1], {\"a\": 1}, [[]]]", "it", {.most_depth = 3}));
  expect_refused("[[1], {\"a\": 1}, [[]]]", {.most_depth = 2}, "2 levels");
}

TEST(JsonInput, SizeAndKindOfFileAreChecked) {
  const TemporaryFolder folder;
  write_whole(folder / "a", "[1, 2, 3]");
  EXPECT_THAT(read_json(folder / "a"), SizeIs(3));
  EXPECT_THAT([&] { read_json(folder / "a", {.most_bytes = 8}); },
              ThrowsMessage<DataError>(HasSubstr("9 bytes, more than the 8")));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder / "pipe", std::string("/dev/zero"), folder / "."})
    EXPECT_THAT([&] { read_json(path); }, ThrowsMessage<SystemError>(HasSubstr(path)));
}

TEST(JsonInput, RepeatedKeysAreTheCallersChoice) {
  const std::string text = R"({"a": {"b": 1, "c": [2], "b": 3}, "b": 4})";
  EXPECT_EQ(parse_json(text, "it"), json::parse(R"({"a": {"b": 3, "c": [2]}, "b": 4})"));
  expect_refused(text, {.repeated = JsonRules::Repeated::refused}, "has \"a.b\" twice");
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": 1, "b": {"a": 2}}])", "it", {.repeated = JsonRules::Repeated::refused}));
}

TEST(JsonInput, CommentsAndTrailingCommasAreTheCallersChoice) {
  const std::string text = "# first\n{\n  // why\n  \"a\": [1, 2,], /* , \n */ \"b\": \"# // /* ,]\\\" , }\",  # last\n}\n#";
  EXPECT_EQ(parse_json(text, "it", {.comments = true}), json::parse(R"({"a": [1, 2], "b": "# // /* ,]\" , }"})"));
  expect_refused(text, {}, "no valid JSON");
  for (const char* wrong : {"[,]", "{,}", "[1,,]", "[1,,2]", "{\"a\": 1,, }", "[1] /* no end", "[1, /* ]", "/", "[1, /", "\"a",
                            "[1 / 2]", ",", "\"a\\"})
    expect_refused(wrong, {.comments = true}, "no valid JSON");
  expect_refused("# one\n/* two\n */ [1, # three\n 2 x]", {.comments = true}, "line 4, column 4");
}

/// Two of the library's ways were quadratic: callbacks, and objects that keep the order of their keys.
TEST(JsonInput, ManyKeysTakeLinearTime) {
  std::string keys = "{", lists = "[", comments;
  for (int i = 0; i < 100'000; ++i) {
    keys += "\"key" + std::to_string(i) + "\":{},";
    lists += "[[],[]],";
    comments += "#\n//\n , /**/";
  }
  keys += "}";
  lists += "]";
  const std::clock_t begin = std::clock();
  EXPECT_THAT(parse_json(keys, "it", {.repeated = JsonRules::Repeated::refused, .comments = true}), SizeIs(100'000));
  EXPECT_THAT(parse_json(lists, "it", {.comments = true}), SizeIs(100'000));
  expect_refused("[1" + comments, {.comments = true}, "no valid JSON");
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5) << "of the processor's seconds";
}

TEST(JsonInput, ValuesAreShownShortAndHarmless) {
  EXPECT_EQ(shown(json{{"a", {1, "x"}}}), R"({"a":[1,"x"]})");
  EXPECT_EQ(shown(json("\x1b[2J \x7f")), "\"\\u001b[2J \\u007f\"");
  EXPECT_EQ(shown(json(std::string(1000, 'x'))), '"' + std::string(199, 'x') + "...");
}

}  // namespace
}  // namespace consist
