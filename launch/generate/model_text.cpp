#include "launch/generate/model_text.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "core/weights/tokenizer_files.h"
#include "datasets/records/chat_writer.h"
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

std::string tokenizer_path(const RunConfig& config, const Parts& parts, const Dataset* run, const std::string& asked) {
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
  if (run != nullptr) {
    if (const std::string own = run->tokenizer(); !own.empty()) return own;
  }
  if (!parts.model_folder.empty()) {
    if (const std::string own = tokenizer_of(parts.model_folder); !own.empty()) return own;
  }
  const std::string nor_dataset = run == nullptr ? "" : ", and the dataset '" + config.dataset + "' knows of none";
  throw UsageError("--model " + config.model + " has no tokenizer.json" + nor_dataset +
                   "; name one with --tokenizer, or give the prompt as --prompt-ids");
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

ModelText find_model_text(const RunConfig& config, const Parts& parts, const Dataset* run, const std::string& asked) {
  ModelText text;
  text.file = tokenizer_path(config, parts, run, asked);
  text.tokenizer = std::make_shared<const tokenizer::Tokenizer>(tokenizer::Tokenizer::from_file(text.file));
  text.ends = ends_of(parts);
  if (text.ends.empty()) {
    if (const auto separator = tokenizer::separator_token(*text.tokenizer, text.file, "auto", "tokenizer"))
      text.ends = {*separator};
  }
  return text;
}

std::vector<std::int32_t> chat_prompt(ModelText& of, const Dataset* run, const std::string& text) {
  std::optional<records::ChatTemplate> chat;
  if (run != nullptr) {
    if (std::string program = run->chat_template(); !program.empty())
      chat = records::chat_template_of(std::move(program), "that of the run's dataset", of.file);
  }
  if (!chat) chat = records::chat_template_beside(of.file);
  if (!chat)
    throw UsageError(
        "--chat: beside " + of.file +
        " there is no chat template (chat_template in tokenizer_config.json, or chat_template.jinja), and no run is known "
        "whose dataset has one; give the prompt as the model is to read it");
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  ::localtime_r(&now, &day);
  const records::ChatWriter writer(std::move(*chat), {.all = true, .roles = {}}, {}, day);
  if (const auto end = of.tokenizer->added_token(writer.end());
      end && std::find(of.ends.begin(), of.ends.end(), *end) == of.ends.end())
    of.ends.push_back(*end);
  return of.tokenizer->encode(writer.prompt(text), false);
}

std::shared_ptr<Dataset> dataset_of_checkpoint(RunConfig config, const Parts& parts, PluginHost& host) {
  if (config.checkpoint.empty()) return nullptr;
  config.from_scratch = true;  // what a folder without a tokenizer was trained with, as its weights are those of the checkpoint
  return make_unopened_dataset(parts, config, host);
}

std::optional<SampleRequest> sample_request(const RunConfig& config, const Parts& parts, PluginHost& host) {
  if (config.sample_every == 0) return std::nullopt;
  SampleRequest request{.every = config.sample_every, .tokens = config.sample_tokens};
  if (config.sample_prompt.empty())
    throw UsageError("--sample-every needs the text that samples go on from: --sample-prompt TEXT");
  const std::shared_ptr<Dataset> dataset = make_unopened_dataset(parts, config, host);
  ModelText text = find_model_text(config, parts, dataset.get(), "");
  const bool is_chat = !dataset->chat_template().empty();
  request.prompt =
      is_chat ? chat_prompt(text, dataset.get(), config.sample_prompt) : text.tokenizer->encode(config.sample_prompt);
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
