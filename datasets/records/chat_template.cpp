#include "datasets/records/chat_template.h"

#include <cstdint>
#include <filesystem>
#include <iterator>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::records {
namespace {

using Parts = std::vector<ChatPart>;

/// What Python's str.strip() takes away.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string stripped(std::string_view text) {
  std::size_t begin = 0, end = text.size(), length = 0;
  while (begin < end && is_space(tokenizer::read_utf8(text, begin, length))) begin += length;
  while (end > begin) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xc0U) == 0x80) --last;
    if (!is_space(tokenizer::read_utf8(text, last, length))) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

std::string without_newlines(std::string_view text, bool before, bool behind) {
  while (before && text.starts_with('\n')) text.remove_prefix(1);
  while (behind && text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text);
}

void add_chatml(Parts& parts, const std::string& role, const std::string& content) {
  parts.push_back({"<|im_start|>" + role + "\n"});
  parts.push_back({content + "<|im_end|>", role});
  parts.push_back({"\n"});
}

Parts chatml(const std::vector<Message>& messages, const std::string& /*place*/) {
  Parts parts;
  for (const Message& message : messages) add_chatml(parts, message.role, message.content);
  return parts;
}

Parts qwen2_5(const std::vector<Message>& messages, const std::string& place) {
  Parts parts;
  if (messages.front().role != "system")
    parts.push_back({"<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"});
  for (ChatPart& part : chatml(messages, place)) parts.push_back(std::move(part));
  return parts;
}

/// Thoughts are written in answers to the last question alone; the last answer has room for them even without any.
Parts qwen3(const std::vector<Message>& messages, const std::string& /*place*/) {
  std::size_t last_question = messages.size() - 1;
  for (std::size_t m = messages.size(); m-- > 0;) {
    const std::string& content = messages[m].content;
    if (messages[m].role != "user" || (content.starts_with("<tool_response>") && content.ends_with("</tool_response>"))) continue;
    last_question = m;
    break;
  }
  Parts parts;
  for (std::size_t m = 0; m < messages.size(); ++m) {
    std::string content = messages[m].content, thoughts;
    if (messages[m].role == "assistant") {
      constexpr std::string_view opens = "<think>", closes = "</think>";
      if (const std::size_t first = content.find(closes); first != std::string::npos) {
        thoughts = without_newlines(std::string_view(content).substr(0, first), false, true);
        if (const std::size_t open = thoughts.rfind(opens); open != std::string::npos) thoughts.erase(0, open + opens.size());
        thoughts = without_newlines(thoughts, true, false);
        content = without_newlines(std::string_view(content).substr(content.rfind(closes) + closes.size()), true, false);
      }
      if (m > last_question && (m + 1 == messages.size() || !thoughts.empty()))
        content =
            "<think>\n" + without_newlines(thoughts, true, true) + "\n</think>\n\n" + without_newlines(content, true, false);
    }
    add_chatml(parts, messages[m].role, content);
  }
  return parts;
}

Parts llama3(const std::vector<Message>& messages, const std::string& /*place*/) {
  Parts parts;
  for (const Message& message : messages) {
    parts.push_back(
        {(parts.empty() ? "<|begin_of_text|>" : "") + ("<|start_header_id|>" + message.role) + "<|end_header_id|>\n\n"});
    parts.push_back({stripped(message.content) + "<|eot_id|>", message.role});
  }
  return parts;
}

void check_alternation(const std::vector<Message>& messages, std::size_t first, const std::string& place) {
  for (std::size_t m = first; m < messages.size(); ++m) {
    const char* const expected = (m - first) % 2 == 0 ? "user" : "assistant";
    if (messages[m].role != expected)
      throw DataError(place + ", message " + std::to_string(m + 1) + " is of the role " + in_quotes(messages[m].role, 40) +
                      "; in this chat template user and assistant take turns, so it must be " + expected);
  }
}

Parts llama2(const std::vector<Message>& messages, const std::string& place) {
  const std::size_t first = messages.front().role == "system" ? 1 : 0;
  check_alternation(messages, first, place);
  Parts parts;
  for (std::size_t m = first; m < messages.size(); ++m) {
    std::string content = messages[m].content;
    if (first == 1 && m == 1) content = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n" + content;
    if (messages[m].role == "user") {
      parts.push_back({"<s>[INST] "});
      parts.push_back({stripped(content), "user"});
      parts.push_back({" [/INST]"});
    } else {
      parts.push_back({" " + stripped(content) + " </s>", "assistant"});
    }
  }
  return parts;
}

Parts mistral(const std::vector<Message>& messages, const std::string& place) {
  check_alternation(messages, 0, place);
  Parts parts{{"<s>"}};
  for (const Message& message : messages) {
    if (message.role == "user") {
      parts.push_back({"[INST] "});
      parts.push_back({message.content, "user"});
      parts.push_back({" [/INST]"});
    } else {
      parts.push_back({message.content + "</s>", "assistant"});
    }
  }
  return parts;
}

constexpr const char* of_chatml = "<|im_start|>,<|im_end|>";

constexpr ChatTemplate templates[] = {
    {"chatml", of_chatml, "", chatml},
    {"llama2", "<s>,</s>", "system,user,assistant", llama2},
    {"llama3", "<|begin_of_text|>,<|start_header_id|>,<|end_header_id|>,<|eot_id|>", "", llama3},
    {"mistral", "<s>,</s>", "user,assistant", mistral},
    {"qwen2.5", of_chatml, "system,user,assistant", qwen2_5},
    {"qwen3", of_chatml, "system,user,assistant", qwen3},
};

/// Published programs, by the hash of their text (FNV-1a, 64 bits) and its length without space at the end. tests/golden/chat has
/// them.
struct Program {
  std::uint64_t hash;
  std::size_t bytes;
  const char* name;
};
constexpr Program programs[] = {
    {0xa41d6bae9b9141bc, 199, "chatml"},  {0xf344eecf1bd3a427, 815, "llama2"},   {0x0e60067a5537498e, 389, "llama3"},
    {0x8c734b90b4f8d84d, 470, "mistral"}, {0xe642ce246d7f2e3d, 2506, "qwen2.5"}, {0xcd0d41a64dfce181, 4049, "qwen3"},
};

constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

bool is_listed(const char* list, std::string_view name) {
  return ("," + std::string(list) + ",").find("," + std::string(name) + ",") != std::string::npos;
}

constexpr std::int64_t most_program_bytes = 1 << 20;

/// The program in tokenizer_config.json: a text, or a list of named ones, of which "default" is meant. Empty: none.
std::string program_in(const std::string& file) {
  const nlohmann::json config = read_json(file);
  if (!config.is_object() || !config.contains("chat_template")) return "";
  const nlohmann::json& chat = config["chat_template"];
  if (chat.is_string()) return chat.get<std::string>();
  if (!chat.is_array()) return "";
  for (const nlohmann::json& one : chat) {
    if (one.is_object() && one.value("name", nlohmann::json()) == "default" && one.contains("template") &&
        one["template"].is_string())
      return one["template"].get<std::string>();
  }
  return "";
}

}  // namespace

const ChatTemplate* find_chat_template(std::string_view name) noexcept {
  for (const ChatTemplate& chat : templates) {
    if (name == chat.name) return &chat;
  }
  return nullptr;
}

const ChatTemplate* recognise_chat_template(std::string_view program) noexcept {
  while (!program.empty() && is_space(static_cast<unsigned char>(program.back()))) program.remove_suffix(1);
  for (const Program& known : programs) {
    if (program.size() == known.bytes && fnv1a(program) == known.hash) return find_chat_template(known.name);
  }
  return nullptr;
}

const ChatTemplate& chat_template_beside(const std::string& tokenizer_json, const std::string& option) {
  const std::filesystem::path folder = std::filesystem::path(tokenizer_json).parent_path();
  const std::string choice = "name the template with --" + option + ", one of " CONSIST_CHAT_TEMPLATES;
  std::string file, program;
  std::error_code ignored;
  if (const auto own = folder / "chat_template.jinja"; std::filesystem::is_regular_file(own, ignored)) {
    file = own.string();
    program = read_text(file, most_program_bytes);
  } else if (const auto config = folder / "tokenizer_config.json"; std::filesystem::is_regular_file(config, ignored)) {
    file = config.string();
    program = program_in(file);
  }
  if (program.empty())
    throw UsageError("--" + option + " auto: beside " + in_quotes(tokenizer_json) +
                     " there is no chat template (chat_template in "
                     "tokenizer_config.json, or chat_template.jinja); " +
                     choice);
  if (const ChatTemplate* const known = recognise_chat_template(program)) return *known;
  throw UsageError(
      "--" + option + " auto: the chat template in " + in_quotes(file) +
      " is none of those that are built in, and a program in Jinja is not run here; where one of them writes the same, " +
      choice);
}

std::vector<ChatPart> write_chat(const ChatTemplate& chat, const std::vector<Message>& messages, const std::string& place) {
  for (std::size_t m = 0; m < messages.size() && *chat.roles != '\0'; ++m) {
    if (!is_listed(chat.roles, messages[m].role))
      throw DataError(place + ", message " + std::to_string(m + 1) + " is of the role " + in_quotes(messages[m].role, 40) +
                      "; the chat template " + chat.name + " can write " + chat.roles);
  }
  return chat.write(messages, place);
}

}  // namespace consist::records
