// tokenizer.json into parts. Everything that would change the result and is not supported is refused by its name.
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "datasets/tokenizer/tokenizer.h"

namespace consist::tokenizer {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& field, const std::string& why) { throw DataError("tokenizer.json: \"" + field + "\" " + why); }

bool given(const Json& json, const char* name) { return json.contains(name) && !json[name].is_null(); }

const Json& object(const Json& json, const char* name, const std::string& field) {
  if (!json.contains(name) || !json[name].is_object()) refuse(field, "is missing or no object");
  return json[name];
}

std::string type_of(const Json& json, const std::string& field) {
  if (!json.is_object() || !json.contains("type") || !json["type"].is_string()) refuse(field, "has no \"type\"");
  return json["type"].get<std::string>();
}

bool flag(const Json& json, const char* name, bool fallback, const std::string& field) {
  if (!given(json, name)) return fallback;
  if (!json[name].is_boolean()) refuse(field + "." + name, "must be true or false");
  return json[name].get<bool>();
}

void read_normalizer(const Json& json, const std::string& field, Parts& parts) {
  const std::string type = type_of(json, field);
  if (type == "NFC") {
    parts.nfc = true;
  } else if (type == "Sequence" && json.contains("normalizers") && json["normalizers"].is_array()) {
    for (const Json& step : json["normalizers"]) read_normalizer(step, field + ".normalizers", parts);
  } else {
    refuse(field, "is of type \"" + type + "\"; supported are NFC and null");
  }
}

void read_pre_tokenizer(const Json& json, const std::string& field, Parts& parts, bool& byte_level) {
  const std::string type = type_of(json, field);
  if (byte_level) refuse(field, "goes on behind ByteLevel, which must be last");
  if (type == "Sequence" && json.contains("pretokenizers") && json["pretokenizers"].is_array()) {
    for (const Json& step : json["pretokenizers"]) read_pre_tokenizer(step, field + ".pretokenizers", parts, byte_level);
  } else if (type == "Split") {
    if (!json.contains("pattern") || !json["pattern"].is_object() || !json["pattern"].contains("Regex") || !json["pattern"]["Regex"].is_string()) {
      refuse(field + ".pattern", "is no Regex");
    }
    if (json.value("behavior", Json("")) != "Isolated") refuse(field + ".behavior", "is not Isolated, which alone is supported");
    if (flag(json, "invert", false, field)) refuse(field + ".invert", "is true, which is not supported");
    parts.splits.emplace_back(json["pattern"]["Regex"].get<std::string>());
  } else if (type == "ByteLevel") {
    byte_level = true;
    parts.add_prefix_space = flag(json, "add_prefix_space", true, field);
    if (flag(json, "use_regex", true, field)) {
      parts.splits.emplace_back(gpt2_pattern);
    } else if (parts.add_prefix_space) {
      refuse(field + ".add_prefix_space", "is true without use_regex, which is not supported");
    }
    if (parts.add_prefix_space && parts.splits.size() > 1) refuse(field + ".add_prefix_space", "is true behind another Split, which is not supported");
  } else {
    refuse(field, "is of type \"" + type + "\"; supported are Split and ByteLevel, alone or in a Sequence");
  }
}

std::vector<std::int32_t> template_ids(const Json& json, const std::string& token, const std::string& field) {
  const Json& specials = object(json, "special_tokens", field + ".special_tokens");
  if (!specials.contains(token) || !specials[token].is_object() || !specials[token].contains("ids") || !specials[token]["ids"].is_array()) {
    refuse(field + ".special_tokens", "lacks \"" + token + "\"");
  }
  std::vector<std::int32_t> ids;
  for (const Json& id : specials[token]["ids"]) {
    if (!id.is_number_integer()) refuse(field + ".special_tokens", "has an id that is no integer");
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

void read_post_processor(const Json& json, const std::string& field, Parts& parts) {
  const std::string type = type_of(json, field);
  if (type == "ByteLevel") return;  // concerns offsets only
  if (type == "Sequence" && json.contains("processors") && json["processors"].is_array()) {
    for (const Json& step : json["processors"]) read_post_processor(step, field + ".processors", parts);
  } else if (type == "TemplateProcessing" && json.contains("single") && json["single"].is_array()) {
    bool behind = false;
    for (const Json& item : json["single"]) {
      if (item.is_object() && item.contains("Sequence")) {
        behind = true;
      } else if (item.is_object() && item.contains("SpecialToken") && item["SpecialToken"].contains("id") && item["SpecialToken"]["id"].is_string()) {
        const std::vector<std::int32_t> ids = template_ids(json, item["SpecialToken"]["id"].get<std::string>(), field);
        std::vector<std::int32_t>& side = behind ? parts.after : parts.before;
        side.insert(side.end(), ids.begin(), ids.end());
      } else {
        refuse(field + ".single", "has an item that is neither a Sequence nor a SpecialToken");
      }
    }
  } else {
    refuse(field, "is of type \"" + type + "\"; supported are ByteLevel and TemplateProcessing");
  }
}

std::pair<std::string, std::string> read_merge(const Json& merge, std::size_t index) {
  const std::string field = "model.merges[" + std::to_string(index) + "]";
  std::string left, right;
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    left = merge[0].get<std::string>();
    right = merge[1].get<std::string>();
  } else if (merge.is_string()) {
    const std::string text = merge.get<std::string>();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) refuse(field, "is no pair of tokens");
    left = text.substr(0, space);
    right = text.substr(space + 1);
  } else {
    refuse(field, "is no pair of tokens");
  }
  if (left.empty() || right.empty()) refuse(field, "has an empty token");
  return {bytes_of_token(left), bytes_of_token(right)};
}

std::unique_ptr<Bpe> read_model(const Json& json, const std::vector<AddedToken>& added) {
  if (const std::string type = json.value("type", "BPE"); type != "BPE") refuse("model.type", "is \"" + type + "\"; supported is BPE");
  if (given(json, "dropout") && json["dropout"] != 0) refuse("model.dropout", "is given, which is not supported");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (given(json, name) && json[name] != "") refuse(std::string("model.") + name, "is given, which is not supported");
  }
  if (flag(json, "byte_fallback", false, "model")) refuse("model.byte_fallback", "is true; only byte-level vocabularies are supported");
  const Json& vocab = object(json, "vocab", "model.vocab");
  StringMap<std::int32_t> vocabulary;
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > 10'000'000) refuse("model.vocab", "has an id that is no index: '" + token + "'");
    bool is_added = false;  // added tokens may stand in the vocabulary as plain text
    for (const AddedToken& a : added) is_added |= a.text == token;
    if (is_added || token.empty()) continue;
    if (!vocabulary.emplace(bytes_of_token(token), id.get<std::int32_t>()).second) refuse("model.vocab", "has '" + token + "' twice");
  }
  if (!json.contains("merges") || !json["merges"].is_array()) refuse("model.merges", "is missing or no list");
  std::vector<std::pair<std::string, std::string>> merges;
  for (std::size_t i = 0; i < json["merges"].size(); ++i) merges.push_back(read_merge(json["merges"][i], i));
  return std::make_unique<Bpe>(std::move(vocabulary), merges, flag(json, "ignore_merges", false, "model"));
}

std::vector<AddedToken> read_added(const Json& json) {
  std::vector<AddedToken> added;
  if (!given(json, "added_tokens")) return added;
  if (!json["added_tokens"].is_array()) refuse("added_tokens", "is no list");
  for (const Json& token : json["added_tokens"]) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string() || !token.contains("id") || !token["id"].is_number_integer()) {
      refuse("added_tokens", "has an entry without \"content\" or \"id\"");
    }
    AddedToken a{.text = token["content"].get<std::string>(), .id = token["id"].get<std::int32_t>()};
    if (a.text.empty() || a.id < 0 || a.id > 10'000'000) refuse("added_tokens", "has an empty content or an id that is no index");
    for (const char* name : {"single_word", "lstrip", "rstrip"}) {
      if (flag(token, name, false, "added_tokens")) refuse(std::string("added_tokens.") + name, "is true for '" + a.text + "', which is not supported");
    }
    a.special = flag(token, "special", false, "added_tokens");
    a.normalized = flag(token, "normalized", !a.special, "added_tokens");
    added.push_back(std::move(a));
  }
  return added;
}

}  // namespace

Parts parse_tokenizer_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) throw DataError("it is no JSON object, or cut off");
  for (const char* name : {"truncation", "padding"}) {
    if (given(json, name)) refuse(name, "is given; training packs sequences itself");
  }
  Parts parts;
  try {
    parts.added = read_added(json);
    if (given(json, "normalizer")) read_normalizer(json["normalizer"], "normalizer", parts);
    bool byte_level = false;
    if (!given(json, "pre_tokenizer")) refuse("pre_tokenizer", "is missing; a byte-level tokenizer needs ByteLevel");
    read_pre_tokenizer(json["pre_tokenizer"], "pre_tokenizer", parts, byte_level);
    if (!byte_level) refuse("pre_tokenizer", "has no ByteLevel");
    if (given(json, "post_processor")) read_post_processor(json["post_processor"], "post_processor", parts);
    parts.bpe = read_model(object(json, "model", "model"), parts.added);
  } catch (const Json::exception& error) {
    throw DataError(std::string("tokenizer.json is malformed: ") + error.what());
  }
  return parts;
}

}  // namespace consist::tokenizer
