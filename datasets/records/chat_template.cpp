#include "datasets/records/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "consist/text.h"

namespace consist::records {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// The program in tokenizer_config.json: a text, or a list of named ones, of which "default" is meant. Empty: none.
std::string program_in(const nlohmann::json& config) {
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

/// Keys such as "bos_token", whose values are texts or objects with a "content"; those that are known already stay.
void add_special_tokens(const nlohmann::json& config, std::vector<std::pair<std::string, std::string>>& tokens) {
  if (!config.is_object()) return;
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    if (std::any_of(tokens.begin(), tokens.end(), [&, &name = key](const auto& known) { return known.first == name; })) continue;
    const nlohmann::json text = value.is_object() ? value.value("content", nlohmann::json()) : value;
    if (text.is_string()) tokens.emplace_back(key, text.get<std::string>());
  }
}

std::vector<std::pair<std::string, std::string>> special_tokens_beside(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (is_file(folder / name)) add_special_tokens(read_json((folder / name).string()), tokens);
  }
  return tokens;
}

}  // namespace

ChatTemplate chat_template_of(std::string program, const std::string& name, const std::string& tokenizer_json) {
  return {name, std::move(program), "", special_tokens_beside(fs::path(tokenizer_json).parent_path())};
}

std::optional<ChatTemplate> chat_template_beside(const std::string& tokenizer_json) {
  const fs::path folder = fs::path(tokenizer_json).parent_path();
  if (const fs::path own = folder / "chat_template.jinja"; is_file(own))
    return chat_template_of(read_text(own.string(), jinja::most_program_bytes), own.string(), tokenizer_json);
  const fs::path config = folder / "tokenizer_config.json";
  if (!is_file(config)) return std::nullopt;
  std::string program = program_in(read_json(config.string()));
  if (program.empty()) return std::nullopt;
  return chat_template_of(std::move(program), config.string(), tokenizer_json);
}

ChatTemplate choose_chat_template(const std::string& choice, const std::string& tokenizer_json, const std::string& option) {
  const std::string known = "one of " CONSIST_CHAT_TEMPLATES ", or a file with one";
  if (choice == "auto") {
    if (auto own = chat_template_beside(tokenizer_json)) return std::move(*own);
    throw UsageError(
        "--" + option + " auto: beside " + in_quotes(tokenizer_json) +
        " there is no chat template (chat_template in tokenizer_config.json, or chat_template.jinja); name the template "
        "with --" +
        option + ", " + known);
  }
  if (const BuiltinTemplate* const builtin = find_builtin_template(choice)) {
    ChatTemplate chat = chat_template_of(builtin->program, builtin->name, tokenizer_json);
    chat.tokens = builtin->tokens;
    return chat;
  }
  if (!is_file(choice))
    throw UsageError("--" + option + " is '" + choice + "', and there is no such file; it must be auto, " + known);
  return chat_template_of(read_text(choice, jinja::most_program_bytes), choice, tokenizer_json);
}

}  // namespace consist::records
