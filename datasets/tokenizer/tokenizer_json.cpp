// tokenizer.json into parts. Everything that would change the result and is not supported is refused by its name.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "consist/error.h"
#include "consist/json_input.h"
#include "datasets/tokenizer/tokenizer.h"

namespace consist::tokenizer {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw DataError("tokenizer.json: \"" + field + "\" " + why);
}

bool given(const Json& json, const char* name) {
  return json.contains(name) && !json[name].is_null();
}

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

std::int32_t token_id(const Json& json, const std::string& field) {
  constexpr std::int64_t most = 2'000'000;  // guards the tables that are indexed by id
  if (!json.is_number_integer() || json.get<std::int64_t>() < 0 || json.get<std::int64_t>() > most) {
    refuse(field, "has the id " + shown(json) + ", which is no integer in 0.." + std::to_string(most));
  }
  return json.get<std::int32_t>();
}

std::string text_of(const Json& json, const char* name, const std::string& field) {
  if (!json.contains(name) || !json[name].is_string()) refuse(field + "." + name, "is missing or no text");
  return json[name].get<std::string>();
}

void read_normalizer(const Json& json, const std::string& field, Parts& parts, bool inner = false) {
  const std::string type = type_of(json, field);
  if (type == "NFC") {
    parts.normalizer.push_back({.kind = Normalization::Kind::nfc});
  } else if (type == "Prepend") {
    parts.normalizer.push_back({.kind = Normalization::Kind::prepend, .content = text_of(json, "prepend", field)});
  } else if (type == "Replace") {
    if (!json.contains("pattern") || !json["pattern"].is_object() || !json["pattern"].contains("String"))
      refuse(field + ".pattern", "is no String, which alone is supported");
    Normalization step{.kind = Normalization::Kind::replace,
                       .pattern = text_of(json["pattern"], "String", field + ".pattern"),
                       .content = text_of(json, "content", field)};
    if (step.pattern.empty()) refuse(field + ".pattern", "is empty");
    parts.normalizer.push_back(std::move(step));
  } else if (type == "Sequence" && !inner && json.contains("normalizers") && json["normalizers"].is_array()) {
    for (const Json& step : json["normalizers"]) read_normalizer(step, field + ".normalizers", parts, true);
  } else {
    refuse(field, "is of type \"" + type + "\"; supported are NFC, Prepend, Replace, a Sequence of them, and null");
  }
}

Metaspace read_metaspace(const Json& json, const std::string& field) {
  Metaspace metaspace{.mark = text_of(json, "replacement", field)};
  if (metaspace.mark.empty()) refuse(field + ".replacement", "is empty");
  const std::string scheme = json.contains("prepend_scheme") ? text_of(json, "prepend_scheme", field) : "always";
  if (scheme == "first" || scheme == "never") {
    metaspace.prepend = scheme == "first" ? Metaspace::Prepend::first : Metaspace::Prepend::never;
  } else if (scheme != "always") {
    refuse(field + ".prepend_scheme", "is \"" + scheme + "\"; it can be always, first or never");
  }
  if (!flag(json, "add_prefix_space", true, field) && metaspace.prepend != Metaspace::Prepend::never)
    refuse(field + ".add_prefix_space", "is false, which contradicts prepend_scheme \"" + scheme + "\"");
  metaspace.split = flag(json, "split", true, field);
  return metaspace;
}

void read_pre_tokenizer(const Json& json, const std::string& field, Parts& parts, bool& byte_level, bool inner = false) {
  const std::string type = type_of(json, field);
  if (byte_level) refuse(field, "goes on behind ByteLevel, which must be last");
  if (parts.metaspace) refuse(field, "goes on behind Metaspace, which is supported alone");
  if (type == "Sequence" && !inner && json.contains("pretokenizers") && json["pretokenizers"].is_array()) {
    for (const Json& step : json["pretokenizers"]) read_pre_tokenizer(step, field + ".pretokenizers", parts, byte_level, true);
  } else if (type == "Split") {
    if (!json.contains("pattern") || !json["pattern"].is_object() || !json["pattern"].contains("Regex") ||
        !json["pattern"]["Regex"].is_string()) {
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
    if (parts.add_prefix_space && parts.splits.size() > 1)
      refuse(field + ".add_prefix_space", "is true behind another Split, which is not supported");
  } else if (type == "Metaspace") {
    if (!parts.splits.empty()) refuse(field, "has Metaspace behind a Split, which is not supported");
    parts.metaspace = read_metaspace(json, field);
  } else {
    refuse(field, "is of type \"" + type + "\"; supported are Split and ByteLevel, alone or in a Sequence, and Metaspace");
  }
}

std::vector<std::int32_t> template_ids(const Json& json, const std::string& token, const std::string& field) {
  const Json& specials = object(json, "special_tokens", field + ".special_tokens");
  if (!specials.contains(token) || !specials[token].is_object() || !specials[token].contains("ids") ||
      !specials[token]["ids"].is_array()) {
    refuse(field + ".special_tokens", "lacks \"" + token + "\"");
  }
  std::vector<std::int32_t> ids;
  for (const Json& id : specials[token]["ids"]) {
    ids.push_back(token_id(id, field + ".special_tokens"));
  }
  return ids;
}

void read_post_processor(const Json& json, const std::string& field, Parts& parts, bool& has_template, bool inner = false) {
  const std::string type = type_of(json, field);
  if (type == "ByteLevel") return;  // concerns offsets only
  if (type == "Sequence" && !inner && json.contains("processors") && json["processors"].is_array()) {
    for (const Json& step : json["processors"]) read_post_processor(step, field + ".processors", parts, has_template, true);
  } else if (type == "TemplateProcessing" && json.contains("single") && json["single"].is_array()) {
    if (std::exchange(has_template, true)) refuse(field, "has a second TemplateProcessing, which is not supported");
    bool behind = false;
    for (const Json& item : json["single"]) {
      if (item.is_object() && item.contains("Sequence")) {
        if (!item["Sequence"].is_object() || item["Sequence"].value("id", "") != "A")
          refuse(field + ".single", "has a Sequence other than A");
        if (std::exchange(behind, true)) refuse(field + ".single", "has the text twice");
      } else if (item.is_object() && item.contains("SpecialToken") && item["SpecialToken"].is_object() &&
                 item["SpecialToken"].contains("id") && item["SpecialToken"]["id"].is_string()) {
        const std::vector<std::int32_t> ids = template_ids(json, item["SpecialToken"]["id"].get<std::string>(), field);
        std::vector<std::int32_t>& side = behind ? parts.after : parts.before;
        side.insert(side.end(), ids.begin(), ids.end());
      } else {
        refuse(field + ".single", "has an item that is neither a Sequence nor a SpecialToken");
      }
    }
    if (!behind) refuse(field + ".single", "lacks the text itself");
  } else {
    refuse(field, "is of type \"" + type + "\"; supported are ByteLevel and TemplateProcessing");
  }
}

std::pair<std::string, std::string> read_merge(const Json& merge, std::size_t index, bool byte_level) {
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
  if (!byte_level) return {std::move(left), std::move(right)};
  return {bytes_of_token(left), bytes_of_token(right)};
}

std::unique_ptr<Bpe> read_model(const Json& json, const std::vector<AddedToken>& added, bool byte_level) {
  if (const std::string type = json.value("type", "BPE"); type != "BPE")
    refuse("model.type", "is \"" + type + "\"; supported is BPE");
  if (given(json, "dropout") && json["dropout"] != 0) refuse("model.dropout", "is given, which is not supported");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (given(json, name) && json[name] != "") refuse(std::string("model.") + name, "is given, which is not supported");
  }
  BpeSettings settings{.ignore_merges = flag(json, "ignore_merges", false, "model"),
                       .characters = !byte_level,
                       .byte_fallback = flag(json, "byte_fallback", false, "model"),
                       .fuse_unknown = flag(json, "fuse_unk", false, "model")};
  if (byte_level && settings.byte_fallback) refuse("model.byte_fallback", "is true, but the pre-tokenizer is byte-level");
  if (byte_level && given(json, "unk_token"))
    refuse("model.unk_token", "is given; in a byte-level vocabulary nothing is unknown");
  std::unordered_set<std::string_view> added_texts;
  for (const AddedToken& token : added) added_texts.insert(token.text);
  StringMap<std::int32_t> vocabulary;
  std::unordered_set<std::int32_t> ids;
  for (const auto& [token, id] : object(json, "vocab", "model.vocab").items()) {
    const std::int32_t index = token_id(id, "model.vocab");
    if (!ids.insert(index).second) refuse("model.vocab", "has the id " + std::to_string(index) + " twice");
    if (token.empty()) refuse("model.vocab", "has an empty token");
    if (!byte_level) {
      vocabulary.emplace(token, index);
      continue;
    }
    // Added tokens stand in the vocabulary as they are in the text; one that has no byte-level form takes no part in merging.
    if (added_texts.contains(token) && !is_byte_level(token)) continue;
    vocabulary.emplace(bytes_of_token(token), index);
  }
  if (!json.contains("merges") || !json["merges"].is_array()) refuse("model.merges", "is missing or no list");
  std::vector<std::pair<std::string, std::string>> merges;
  for (std::size_t i = 0; i < json["merges"].size(); ++i) merges.push_back(read_merge(json["merges"][i], i, byte_level));
  if (given(json, "unk_token")) {
    const auto unknown = vocabulary.find(text_of(json, "unk_token", "model"));
    if (unknown == vocabulary.end()) refuse("model.unk_token", "is not in model.vocab");
    settings.unknown = unknown->second;
  }
  return std::make_unique<Bpe>(std::move(vocabulary), merges, settings);
}

std::vector<AddedToken> read_added(const Json& json) {
  std::vector<AddedToken> added;
  if (!given(json, "added_tokens")) return added;
  if (!json["added_tokens"].is_array()) refuse("added_tokens", "is no list");
  for (const Json& token : json["added_tokens"]) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string() || !token.contains("id")) {
      refuse("added_tokens", "has an entry without \"content\" or \"id\"");
    }
    AddedToken a{.text = token["content"].get<std::string>(), .id = token_id(token["id"], "added_tokens")};
    if (a.text.empty()) refuse("added_tokens", "has an empty content");
    for (const char* name : {"single_word", "lstrip", "rstrip"}) {
      if (flag(token, name, false, "added_tokens"))
        refuse(std::string("added_tokens.") + name, "is true for '" + a.text + "', which is not supported");
    }
    a.special = flag(token, "special", false, "added_tokens");
    a.normalized = flag(token, "normalized", !a.special, "added_tokens");
    added.push_back(std::move(a));
  }
  return added;
}

/// The reference takes an added token's id from the vocabulary or counts on behind it, and ignores the file's; where they differ,
/// the file was not written by it and nobody can say what is meant.
void check_added_ids(const std::vector<AddedToken>& added, const Json& vocab) {
  std::int64_t next = static_cast<std::int64_t>(vocab.size());
  std::unordered_set<std::string_view> seen;
  for (const AddedToken& token : added) {
    if (!seen.insert(token.text).second) refuse("added_tokens", "has '" + token.text + "' twice");
    const bool in_vocabulary = vocab.contains(token.text);
    const std::int64_t expected = in_vocabulary ? token_id(vocab[token.text], "model.vocab") : next;
    if (token.id != expected) {
      refuse("added_tokens", "gives '" + token.text + "' the id " + std::to_string(token.id) + ", but the vocabulary implies " +
                                 std::to_string(expected));
    }
    next = std::max(next, expected + 1);
  }
}

/// decode() goes by the model; a decoder of another kind would give another text.
void check_decoder(const Json& json, bool byte_level) {
  if (!given(json, "decoder")) return;
  const std::string type = type_of(json["decoder"], "decoder");
  if (byte_level && type != "ByteLevel") refuse("decoder", "is of type \"" + type + "\"; supported is ByteLevel");
  if (!byte_level && type != "Sequence" && type != "Metaspace" && type != "ByteFallback")
    refuse("decoder", "is of type \"" + type + "\"; supported are Metaspace and the Sequence of Llama 2");
}

}  // namespace

Parts parse_tokenizer_json(std::string_view text) {
  const Json json = parse_json(text, "it", {.most_bytes = tokenizer_most_bytes});
  if (!json.is_object()) throw DataError("it is no JSON object");
  for (const char* name : {"truncation", "padding"}) {
    if (given(json, name)) refuse(name, "is given; training packs sequences itself");
  }
  Parts parts;
  try {
    parts.added = read_added(json);
    if (given(json, "normalizer")) read_normalizer(json["normalizer"], "normalizer", parts);
    bool byte_level = false, has_template = false;
    const Json& model = object(json, "model", "model");
    if (given(json, "pre_tokenizer")) read_pre_tokenizer(json["pre_tokenizer"], "pre_tokenizer", parts, byte_level);
    if (!byte_level && !flag(model, "byte_fallback", false, "model") && !given(model, "unk_token")) {
      refuse("pre_tokenizer",
             given(json, "pre_tokenizer") ? "has no ByteLevel" : "is missing; a byte-level tokenizer needs ByteLevel");
    }
    if (!byte_level && !parts.splits.empty()) refuse("pre_tokenizer", "has a Split without ByteLevel, which is not supported");
    if (given(json, "post_processor")) read_post_processor(json["post_processor"], "post_processor", parts, has_template);
    parts.bpe = read_model(model, parts.added, byte_level);
    check_added_ids(parts.added, model["vocab"]);
    check_decoder(json, byte_level);
    for (AddedToken& token : parts.added) {
      token.found_as = token.normalized ? normalized(token.text, parts.normalizer) : token.text;
      if (token.found_as.empty()) refuse("added_tokens", "has '" + token.text + "', of which normalization leaves nothing");
    }
  } catch (const Json::exception& error) {
    throw DataError(std::string("tokenizer.json is malformed: ") + error.what());
  }
  return parts;
}

}  // namespace consist::tokenizer
