#include "launch/generate/model_text.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "core/weights/tokenizer_files.h"
#include "datasets/packing/file_list.h"
#include "datasets/tokenizer/documents.h"
#include "datasets/tokenizer/text_stream.h"

namespace consist::launch {
namespace {

using nlohmann::json;

constexpr std::int64_t config_most_bytes = 16 << 20;

/// "eos_token_id" of a config: one token, a list, or nothing.
std::vector<std::int32_t> ends_in(const std::string& text, const std::string& path) {
  const json config = parse_json(text, path);
  if (!config.is_object() || !config.contains("eos_token_id") || config["eos_token_id"].is_null()) return {};
  const json& given = config["eos_token_id"];
  std::vector<std::int32_t> ends;
  for (const json& token : given.is_array() ? given : json::array({given})) {
    if (!token.is_number_integer() || token < 0 || token > INT32_MAX)
      throw DataError(path + ": \"eos_token_id\" is " + shown(given) + "; it must be a token or a list of tokens");
    ends.push_back(token.get<std::int32_t>());
  }
  return ends;
}

std::string tokenizer_path(const RunConfig& config, const Parts& parts, const std::string& asked) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto in_folder = [&](const std::string& path) {
    return fs::is_directory(path, ignored) ? path + "/tokenizer.json" : path;
  };
  if (!asked.empty()) {
    const std::string path = in_folder(asked);
    if (!fs::exists(path, ignored)) throw UsageError("--tokenizer " + asked + ": there is no file " + path);
    return path;
  }
  if (!parts.model_folder.empty()) {
    if (const std::string own = tokenizer_of(parts.model_folder); !own.empty()) return own;
  }
  const auto of_dataset = config.plugin_options.find(config.dataset);
  if (of_dataset != config.plugin_options.end()) {
    const auto option = of_dataset->second.find("tokenizer");
    if (option != of_dataset->second.end() && !option->second.empty() && option->second != "shipped")
      return in_folder(option->second);
  }
  if (parts.model_folder.empty() && config.dataset == "text") return packing::shipped_path("text/tokenizer.json");
  throw UsageError("--model " + config.model +
                   " has no tokenizer.json; name one with --tokenizer, or give the prompt as --prompt-ids");
}

}  // namespace

std::vector<std::int32_t> ends_of(const Parts& parts) {
  std::error_code ignored;
  const std::string generation = parts.model_folder.empty() ? "" : parts.model_folder + "/generation_config.json";
  if (!generation.empty() && std::filesystem::exists(generation, ignored)) {
    if (std::vector<std::int32_t> ends = ends_in(read_text(generation, config_most_bytes), generation); !ends.empty())
      return ends;
  }
  return ends_in(parts.architecture->config_json(), "config.json");
}

ModelText find_model_text(const RunConfig& config, const Parts& parts, const std::string& asked) {
  ModelText text;
  text.file = tokenizer_path(config, parts, asked);
  text.tokenizer = std::make_shared<const tokenizer::Tokenizer>(tokenizer::Tokenizer::from_file(text.file));
  text.ends = ends_of(parts);
  if (text.ends.empty()) {
    if (const auto separator = tokenizer::separator_token(*text.tokenizer, text.file, "auto", "tokenizer"))
      text.ends = {*separator};
  }
  return text;
}

std::optional<SampleRequest> sample_request(const RunConfig& config, const Parts& parts) {
  if (config.sample_every == 0) return std::nullopt;
  SampleRequest request{.every = config.sample_every, .tokens = config.sample_tokens};
  if (config.sample_prompt.empty())
    throw UsageError("--sample-every needs the text that samples go on from: --sample-prompt TEXT");
  ModelText text = find_model_text(config, parts, "");
  request.prompt = text.tokenizer->encode(config.sample_prompt);
  request.ends = text.ends;
  request.text = [tokenizer = text.tokenizer](std::span<const std::int32_t> tokens) {
    tokenizer::TextStream stream(*tokenizer);
    std::string whole;
    for (const std::int32_t token : tokens) whole += stream.push(token);
    return whole + stream.finish();
  };
  return request;
}

}  // namespace consist::launch
