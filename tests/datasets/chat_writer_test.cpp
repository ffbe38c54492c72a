// Conversations with tools and thoughts: what the published templates write, and what is learnt of it.
#include "datasets/records/chat_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/files.h"
#include "datasets/tokenizer/tokenizer.h"

namespace consist::records {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const std::string golden = CONSIST_SOURCE_DIR "/tests/golden/";

Json read_golden(const std::string& name) {
  return Json::parse(read_text(golden + name, 1 << 24));
}

ChatWriter writer_of(const std::string& program, const std::string& roles = "assistant", std::vector<std::string> ignored = {}) {
  LearntRoles learnt{.all = roles == "all", .roles = {roles}};
  return {ChatTemplate{"the template", program, "", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}}, learnt, std::move(ignored),
          std::nullopt};
}

ChatWriter builtin(const std::string& name, const std::string& roles = "assistant", std::vector<std::string> ignored = {}) {
  return writer_of(find_builtin_template(name)->program, roles, std::move(ignored));
}

Conversation conversation(const Json& messages, const Json& tools = {}) {
  Conversation made{read_messages(messages, "row 1"), {}};
  if (!tools.is_null()) made.variables.emplace_back("tools", tools);
  return made;
}

std::string learnt_of(const ChatWriter& writer, const Conversation& chat) {
  const WrittenChat written = writer.write(chat, "row 1");
  std::string learnt;
  for (const auto& [begin, end] : written.learnt) learnt += "[" + written.text.substr(begin, end - begin) + "]";
  return learnt;
}

std::string refusal_of(const ChatWriter& writer, const Conversation& chat) {
  try {
    return "accepted: " + writer.write(chat, "row 1").text;
  } catch (const DataError& error) {
    return error.what();
  }
}

class BuiltinTemplates : public ::testing::TestWithParam<const char*> {};

TEST_P(BuiltinTemplates, WriteToolsAndThoughtsAsThePublishedOnesDo) {
  const std::string name = GetParam();
  const std::string published = read_golden("chat/templates.json")[name]["program"];
  ChatTemplate own{name, published, "", {}};
  if (name == "llama3") own.special_tokens = {{"bos_token", "<|begin_of_text|>"}};
  if (name == "llama2" || name == "mistral") own.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const ChatWriter interpreted(own, {.all = false, .roles = {"assistant"}}, {"reasoning_content"}, std::nullopt);
  const ChatWriter ours = builtin(name, "assistant", {"reasoning_content"});
  int written = 0;
  const Json cases = read_golden("jinja.json")["chats"][name];
  for (const Json& expected : cases) {
    SCOPED_TRACE(expected.dump());
    const Conversation chat = conversation(expected["messages"], expected.value("tools", Json()));
    if (expected["text"].is_null()) {
      EXPECT_THAT(refusal_of(interpreted, chat), HasSubstr("row 1: the chat template"));
      EXPECT_THAT(refusal_of(ours, chat), HasSubstr("row 1: the chat template"));
      continue;
    }
    ++written;
    EXPECT_EQ(interpreted.write(chat, "row 1").text, expected["text"].get<std::string>());
    EXPECT_EQ(ours.write(chat, "row 1").text, expected["text"].get<std::string>());
    EXPECT_EQ(learnt_of(ours, chat), learnt_of(interpreted, chat));
  }
  EXPECT_GE(written, 8);
}

INSTANTIATE_TEST_SUITE_P(All, BuiltinTemplates, ::testing::Values("chatml", "llama2", "llama3", "mistral", "qwen2.5", "qwen3"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::erase(name, '.');
                           return name;
                         });

const Json with_call = Json::parse(R"([{"role": "user", "content": "how warm?"},
  {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "warmth", "arguments": {"b": 1, "a": "x"}}}]},
  {"role": "tool", "content": "5", "tool_call_id": "1"}, {"role": "assistant", "reasoning_content": "so cold", "content": "Five."}])");

TEST(ChatWriter, CallsOfToolsAndThoughtsAreLearntWhole) {
  const std::vector<std::string> ignored{"tool_call_id"};
  EXPECT_EQ(learnt_of(builtin("qwen3", "assistant", ignored), conversation(with_call)),
            "[<tool_call>\n{\"name\": \"warmth\", \"arguments\": {\"b\": 1, \"a\": \"x\"}}\n</tool_call><|im_end|>]"
            "[<think>\nso cold\n</think>\n\nFive.<|im_end|>]");
  EXPECT_EQ(learnt_of(builtin("qwen3", "tool", ignored), conversation(with_call)), "[5\n</tool_response><|im_end|>]");
  EXPECT_EQ(learnt_of(builtin("qwen3", "user", ignored), conversation(with_call)), "[how warm?<|im_end|>]");
}

TEST(ChatWriter, KeysThatTheTemplateDoesNotReadAreRefusedUnlessTheyAreIgnored) {
  const Json thoughts =
      Json::parse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "c"}])");
  EXPECT_THAT(
      refusal_of(builtin("chatml"), conversation(thoughts)),
      AllOf(HasSubstr("row 1, message 2 has \"reasoning_content\", which the chat template"), HasSubstr("does not read")));
  EXPECT_THAT(refusal_of(builtin("chatml", "assistant", {"reasoning_content"}), conversation(thoughts)), HasSubstr("accepted: "));
  EXPECT_THAT(refusal_of(builtin("qwen3"), conversation(thoughts)), HasSubstr("<think>\nc\n</think>"));
  EXPECT_THAT(refusal_of(builtin("qwen3"), conversation(with_call)), HasSubstr("message 3 has \"tool_call_id\""));
  const Json one = Json::parse(R"([{"role": "user", "content": "a", "weight": 0}, {"role": "assistant", "content": "b"}])");
  EXPECT_THAT(refusal_of(builtin("qwen3"), conversation(one)), HasSubstr("message 1 has \"weight\""));
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])"),
             plain = Json::parse(R"([{"role": "user", "content": "a"}])");
  EXPECT_THAT(refusal_of(builtin("chatml"), conversation(plain, tools)), HasSubstr("it does not read \"tools\" of the row"));
}

TEST(ChatWriter, MessagesThatTheTemplateLeavesOutAreRefused) {
  const ChatWriter writer = writer_of(
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}");
  EXPECT_THAT(
      refusal_of(writer, conversation(Json::parse(R"([{"role": "critic", "content": "hm"}, {"role": "user", "content": "a"}])"))),
      HasSubstr("message 1 is of the role \"critic\", and the chat template \"the template\" leaves it out"));
}

TEST(ChatWriter, WhatIsMarkedAsGenerationIsLearnt) {
  const std::string program =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</turn> {% "
      "endgeneration %}"
      "{% else %}{{ m.content }}</turn> {% endif %}{% endfor %}";
  const Json chat = Json::parse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])");
  EXPECT_EQ(learnt_of(writer_of(program), conversation(chat)), "[b</turn> ]");
  EXPECT_EQ(learnt_of(writer_of(program, "user"), conversation(chat)), "[a</turn>]");
}

TEST(ChatWriter, AProgramThatLooksAtEachMessageForEachIsRefusedWhereThereAreMany) {
  Json messages = Json::array();
  for (int i = 0; i < 10000; ++i) messages.push_back(Json{{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "words"}});
  const std::string quadratic =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}.{{ messages | selectattr('role', 'equalto', 'x') | list | join }}{% "
      "endfor %}";
  EXPECT_THAT(refusal_of(writer_of(quadratic), conversation(messages)),
              HasSubstr("does more than its length and the conversation's account for"));
  EXPECT_EQ(builtin("qwen3").write(conversation(messages), "row 1").learnt.size(), 5000U);
}

TEST(ChatWriter, ALongConversationTakesTimeLinearInIt) {
  Json messages = Json::array();
  for (int i = 0; i < 40000; ++i)
    messages.push_back(Json{{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "words " + std::to_string(i)}});
  const auto tokenizer = tokenizer::Tokenizer::from_file(CONSIST_SOURCE_DIR "/datasets/text/tokenizer.json");
  const auto begin = std::chrono::steady_clock::now();
  const WrittenChat written = builtin("chatml").write(conversation(messages), "row 1");
  std::vector<tokenizer::MarkedText> parts;
  std::size_t at = 0;
  for (const auto& [from, to] : written.learnt) {
    parts.push_back({written.text.substr(at, from - at), false});
    parts.push_back({written.text.substr(from, to - from), true});
    at = to;
  }
  const tokenizer::MarkedIds ids = tokenizer.encode_marked(parts);
  EXPECT_GT(std::count(ids.marked.begin(), ids.marked.end(), true), 40000);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(12));  // 0.4 s; quadratic in the messages 31 s
}

/// Lengths that were measured in parts equal those measured whole, also where a mark is composed with the letter before it.
TEST(NormalizedLengths, AreThoseOfNormalizedBeginnings) {
  using tokenizer::Normalization;
  const std::vector<std::vector<Normalization>> all{
      {},
      {{Normalization::Kind::nfc}},
      {{Normalization::Kind::prepend, "", "_"}, {Normalization::Kind::replace, " ", "\u2581"}},
      {{Normalization::Kind::nfc}, {Normalization::Kind::replace, "ab", "c"}},
  };
  const std::string text = "a e\u0301 ab\u00e9\u0301 \u6771\u4eac o\u0308\u0304 ab  x\u2581y";
  for (const auto& steps : all) {
    for (const std::string_view also : {std::string_view(), std::string_view("\u2581")}) {
      tokenizer::NormalizedLengths lengths(text, steps, also);
      for (std::size_t end = 1; end <= text.size(); ++end) {
        if (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) continue;
        const std::string whole = tokenizer::normalized(text.substr(0, end), steps);
        EXPECT_EQ(lengths.of_first(end), also.empty() ? whole.size() : tokenizer::with_replaced(whole, also, " ").size()) << end;
      }
    }
  }
}

TEST(ChatWriter, APromptStandsUpToWhereTheAnswerBegins) {
  EXPECT_EQ(builtin("chatml").prompt("why?"), "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(builtin("mistral").prompt("why?"), "<s>[INST] why? [/INST]");
  EXPECT_EQ(builtin("chatml").end(), "<|im_end|>");
  EXPECT_EQ(builtin("llama2").end(), "</s>");
}

}  // namespace
}  // namespace consist::records
