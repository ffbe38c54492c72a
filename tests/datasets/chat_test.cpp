// Conversations: the tokens and masks that transformers gives (tests/golden/make_chat_references.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "consist/json_input.h"
#include "datasets/packing/file_list.h"
#include "datasets/records/builtin_templates.h"
#include "datasets/tokenizer/tokenizer.h"
#include "tests/datasets/opened.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using test::Given;
using test::open;
using test::read;
using test::read_field;
using test::refusal;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string golden = CONSIST_SOURCE_DIR "/tests/golden/chat/";
const char* const names[] = {"chatml", "llama2", "llama3", "mistral", "qwen2.5", "qwen3"};

json templates() {
  return read_json(golden + "templates.json");
}

/// A folder with the tokenizer that the reference of a template was made with, and the template.
class ModelFolder {
 public:
  ModelFolder(const std::string& name, const std::string& program) {
    const json of = read_json(golden + "expected.json")["tokenizers"][name];
    json tokenizer = read_json(CONSIST_SOURCE_DIR "/tests/golden/tokenizer/" + of["file"].get<std::string>());
    int largest = -1;
    for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) largest = std::max(largest, id.get<int>());
    for (const json& token : tokenizer["added_tokens"]) largest = std::max(largest, token["id"].get<int>());
    for (const json& token : of["added"]) {
      tokenizer["added_tokens"].push_back({{"id", ++largest},
                                           {"content", token},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}});
    }
    vocabulary = largest + 1;
    write_whole(folder_ / "tokenizer.json", tokenizer.dump());
    json config = special_tokens(name);
    if (!program.empty()) config["chat_template"] = program;
    write_whole(folder_ / "tokenizer_config.json", config.dump());
  }
  std::string path() const { return folder_.path().string(); }
  std::string operator/(const std::string& name) const { return folder_ / name; }
  int vocabulary = 0;

 private:
  static json special_tokens(const std::string& name) {
    if (name == "llama3") return {{"bos_token", "<|begin_of_text|>"}};
    if (name == "llama2" || name == "mistral") return {{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}};
    return json::object();
  }

  TemporaryFolder folder_;
};

struct Chat {
  std::vector<std::int32_t> ids, learnt;
};

/// All of a dataset's tokens, and the mask of each as a target, from its one sequence.
Chat whole(const Given& given, std::size_t tokens, int vocabulary) {
  Given options{{"format", "chat"}, {"eval-fraction", "0"}};
  options.insert(given.begin(), given.end());
  const auto dataset = open("jsonl", options, static_cast<std::int64_t>(tokens) - 1, vocabulary);
  EXPECT_EQ(dataset->train_sequences(), 1);
  Chat chat{read(*dataset, 0, tokens - 1), {0}};
  const std::vector<std::int32_t> mask = read_field(*dataset, "loss_mask", 0, tokens - 1);
  chat.learnt.insert(chat.learnt.end(), mask.begin(), mask.end());
  return chat;
}

class ChatTemplates : public ::testing::TestWithParam<const char*> {};

TEST_P(ChatTemplates, GiveTheTokensAndMasksOfTransformers) {
  const std::string name = GetParam();
  const json cases = read_json(golden + "expected.json")["cases"][name];
  const ModelFolder model(name, templates()[name]["program"]);
  std::ifstream rows(golden + "rows.jsonl");
  Chat together;
  std::string written, line;
  int refused = 0;
  for (const json& expected : cases) {
    ASSERT_TRUE(std::getline(rows, line));
    write_whole(model / "row.jsonl", line + "\n");
    if (expected.is_null()) {
      EXPECT_THAT(
          refusal<DataError>("jsonl", {{"files", model / "row.jsonl"}, {"format", "chat"}, {"tokenizer", model.path()}}, 4),
          AllOf(HasSubstr("row.jsonl, line 1, field \"messages\": the chat template"), HasSubstr("refuses it"),
                HasSubstr("role")));
      ++refused;
      continue;
    }
    written += line + "\n";
    const auto ids = expected["ids"].get<std::vector<std::int32_t>>(), mask = expected["mask"].get<std::vector<std::int32_t>>();
    together.ids.insert(together.ids.end(), ids.begin(), ids.end());
    together.learnt.insert(together.learnt.end(), mask.begin(), mask.end());
  }
  EXPECT_LT(refused, 6);
  write_whole(model / "rows.jsonl", written);
  for (const std::string& choice : {std::string("auto"), name}) {
    const Chat chat = whole({{"files", model / "rows.jsonl"}, {"tokenizer", model.path()}, {"template", choice}},
                            together.ids.size(), model.vocabulary);
    EXPECT_EQ(chat.ids, together.ids);
    EXPECT_EQ(chat.learnt, together.learnt);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ChatTemplates, ::testing::ValuesIn(names), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '.');
  return name;
});

std::string open_refused(const std::string& program) {
  const ModelFolder model("chatml", program);
  write_whole(model / "row.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}");
  return refusal<DataError>("jsonl", {{"files", model / "row.jsonl"}, {"format", "chat"}, {"tokenizer", model.path()}}, 4);
}

TEST(ChatTemplates, OfAModelAreFoundBesideItsTokenizer) {
  const std::string program = templates()["chatml"]["program"];
  const auto template_of = [&](const ModelFolder& model) {
    write_whole(model / "row.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}");
    const Given given{{"files", model / "row.jsonl"}, {"format", "chat"}, {"tokenizer", model.path()}, {"eval-fraction", "0"}};
    try {
      return open("jsonl", given, 4, model.vocabulary)->describe();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(template_of(ModelFolder("chatml", program)),
              AllOf(HasSubstr("with the chat template "), HasSubstr("/tokenizer_config.json")));
  EXPECT_THAT(template_of(ModelFolder("chatml", "")),
              AllOf(HasSubstr("there is no chat template"), HasSubstr("--jsonl.template, one of chatml, llama2,")));
  const ModelFolder of_file("chatml", "{{ raise_exception('not this one') }}");
  write_whole(of_file / "chat_template.jinja", program + "\n");
  EXPECT_THAT(template_of(of_file), HasSubstr("/chat_template.jinja"));
  const ModelFolder of_list("chatml", "");
  write_whole(
      of_list / "tokenizer_config.json",
      json{{"chat_template", {{{"name", "tool_use"}, {"template", "{{ 1 }}"}}, {{"name", "default"}, {"template", program}}}}}
          .dump());
  EXPECT_THAT(template_of(of_list), HasSubstr("/tokenizer_config.json"));
  for (const char* wrong : {"{% if %}", "{{ messages | no_filter }}", "{% for m in messages %}"})
    EXPECT_THAT(open_refused(wrong), AllOf(HasSubstr("the chat template \""), HasSubstr("line 1: "))) << wrong;
  // An answer that is not to be seen in the text cannot be told from it.
  EXPECT_THAT(open_refused("{{ messages | length }}"), HasSubstr("does not show where an answer begins and ends"));
}

TEST(ChatDataset, FormsOfMessagesAreReadAlike) {
  const ModelFolder model("chatml", "");
  const auto ids = [&](const std::string& row) {
    write_whole(model / "row.jsonl", row);
    const Given given{{"files", model / "row.jsonl"},
                      {"format", "chat"},
                      {"template", "chatml"},
                      {"tokenizer", model.path()},
                      {"eval-fraction", "0"}};
    return read(*open("jsonl", given, 20, model.vocabulary), 0, 20);
  };
  const auto openai = ids(R"({"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why so?"}, )"
                          R"({"role": "assistant", "content": "because"}]})");
  EXPECT_EQ(ids(R"({"conversations": [{"from": "system", "value": "be brief"}, {"from": "human", "value": "why so?"}, )"
                R"({"from": "gpt", "value": "because"}]})"),
            openai);
  EXPECT_EQ(
      ids(R"({"messages": [{"role": "system", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]}, )"
          R"({"role": "user", "content": "why so?", "tool_calls": null}, {"role": "assistant", "content": "because"}]})"),
      openai);
}

TEST(ChatDataset, RolesThatAreLearntAreChosen) {
  const ModelFolder model("chatml", "");
  write_whole(
      model / "row.jsonl",
      R"({"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}, {"role": "assistant", "content": "z"}]})");
  // <|im_start|> system \n x <|im_end|> \n <|im_start|> user ...
  const auto tokenizer = tokenizer::Tokenizer::from_file(model / "tokenizer.json");
  const std::vector<std::int32_t> all = tokenizer.encode(
      "<|im_start|>system\nx<|im_end|>\n<|im_start|>user\ny<|im_end|>\n<|im_start|>assistant\nz<|im_end|>\n", false);
  const auto learnt = [&](const std::string& roles) {
    const Chat chat =
        whole({{"files", model / "row.jsonl"}, {"template", "chatml"}, {"tokenizer", model.path()}, {"learn", roles}}, all.size(),
              model.vocabulary);
    EXPECT_EQ(chat.ids, all);
    std::vector<std::int32_t> ids;
    for (std::size_t t = 0; t < all.size(); ++t) {
      if (chat.learnt[t] != 0) ids.push_back(all[t]);
    }
    return tokenizer.decode(ids);  // which leaves the ends of turns out
  };
  EXPECT_EQ(learnt("assistant"), "z");
  EXPECT_EQ(learnt("user"), "y");
  EXPECT_EQ(learnt("user,assistant"), "yz");
  EXPECT_EQ(learnt("system,assistant"), "xz");
  const auto everything = open("jsonl",
                               {{"files", model / "row.jsonl"},
                                {"format", "chat"},
                                {"template", "chatml"},
                                {"learn", "all"},
                                {"tokenizer", model.path()},
                                {"eval-fraction", "0"}},
                               4, model.vocabulary);
  EXPECT_THAT(everything->fields(), ::testing::IsEmpty());
  EXPECT_THAT(refusal<DataError>("jsonl",
                                 {{"files", model / "row.jsonl"},
                                  {"format", "chat"},
                                  {"template", "chatml"},
                                  {"learn", "tool"},
                                  {"tokenizer", model.path()}},
                                 4),
              AllOf(HasSubstr("nothing to learn"), HasSubstr("--jsonl.learn")));
}

TEST(ChatDataset, BadConversationsAreNamedByFileAndLine) {
  const ModelFolder model("chatml", "");
  const auto refused = [&](const std::string& messages, const std::string& chat = "chatml") {
    write_whole(model / "bad.jsonl", "\n{\"messages\": " + messages + "}\n");
    return refusal<DataError>(
        "jsonl", {{"files", model / "bad.jsonl"}, {"format", "chat"}, {"template", chat}, {"tokenizer", model.path()}}, 4);
  };
  const std::string place = "bad.jsonl, line 2, field \"messages\"";
  EXPECT_THAT(refused("\"hello\""), HasSubstr(place + " is no list of messages but \"hello\""));
  EXPECT_THAT(refused("[]"), HasSubstr(place + " is a list without messages"));
  EXPECT_THAT(refused("[{\"role\": \"user\", \"content\": \"a\"}, 5]"), HasSubstr(place + ", message 2 is no object but 5"));
  EXPECT_THAT(refused("[{\"role\": \"user\"}]"),
              AllOf(HasSubstr("message 1 has \"role\""), HasSubstr("needs \"role\" and \"content\"")));
  EXPECT_THAT(refused("[{\"role\": 1, \"content\": \"a\"}]"), HasSubstr("has the role 1"));
  EXPECT_THAT(refused("[{\"role\": \"user\", \"content\": null}]"), HasSubstr("has the content null"));
  EXPECT_THAT(refused("[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]"), HasSubstr("image_url"));
  EXPECT_THAT(refused("[{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{}]}]"),
              HasSubstr("has \"tool_calls\", which the chat"));
  EXPECT_THAT(refused("[{\"role\": \"critic\", \"content\": \"a\"}]", "qwen3"),
              AllOf(HasSubstr("role \"critic\""), HasSubstr("system, user, assistant and tool")));
  EXPECT_THAT(refused("[{\"role\": \"assistant\", \"content\": \"a\"}]", "llama2"), HasSubstr("it must be user"));
  write_whole(model / "bad.jsonl", "{\"prompt\": \"a\"}\n");
  EXPECT_THAT(
      refusal<DataError>(
          "jsonl", {{"files", model / "bad.jsonl"}, {"format", "chat"}, {"template", "chatml"}, {"tokenizer", model.path()}}, 4),
      HasSubstr("line 1 has no field \"messages\" or \"conversations\"; it has \"prompt\""));
}

TEST(ChatDataset, ATokenizerWithoutTheTemplatesTokensIsWarnedOf) {
  const TemporaryFolder folder;
  write_whole(folder / "row.jsonl",
              "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}");
  const auto dataset =
      open("jsonl", {{"files", folder / "row.jsonl"}, {"format", "chat"}, {"template", "chatml"}, {"eval-fraction", "0"}}, 4);
  EXPECT_THAT(dataset->warnings(),
              ::testing::ElementsAre(AllOf(HasSubstr("<|im_start|>, <|im_end|>"), HasSubstr("several tokens each"))));
}

}  // namespace
}  // namespace consist
