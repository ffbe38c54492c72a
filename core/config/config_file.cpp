#include "core/config/config_file.h"

namespace {
/// The library asserts what some damaged texts do not keep, which must be an error like others.
struct TomlFault {};
[[noreturn]] void throw_toml_fault() {
  throw TomlFault();
}
}  // namespace
#undef NDEBUG  // with it the library assumes what it asserts
#define TOML_ASSERT(expr) (static_cast<bool>(expr) ? void() : throw_toml_fault())
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "core/config/option_value.h"

namespace consist {
namespace {

using nlohmann::json;

constexpr std::int64_t most_bytes = std::int64_t{1} << 20;
constexpr int most_depth = 8;

[[noreturn]] void refuse_value(const std::string& said, const std::string& why) {
  throw DataError(said + " " + why);
}

/// A value of TOML; nothing for a kind that no option has.
std::optional<json> plain(const toml::node& node) {
  if (const auto* text = node.as_string()) return json(text->get());
  if (const auto* number = node.as_integer()) return json(number->get());
  if (const auto* number = node.as_floating_point()) return json(number->get());
  if (const auto* flag = node.as_boolean()) return json(flag->get());
  return std::nullopt;
}

void add_table(const toml::table& table, const std::string& prefix, const std::string& file, int depth,
               std::vector<ConfigEntry>& entries) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const std::string said = file + ", line " + std::to_string(key.source().begin.line) + ": " + printable(name);
    if (const toml::table* inner = node.as_table()) {
      if (depth == most_depth) refuse_value(said, "lies in more than " + std::to_string(most_depth) + " tables");
      add_table(*inner, name + ".", file, depth + 1, entries);
      continue;
    }
    json value;
    if (const toml::array* list = node.as_array()) {
      value = json::array();
      for (const toml::node& element : *list) {
        const std::optional<json> read = plain(element);
        if (!read)
          refuse_value(said, "holds a list, a table or a date in its list; an option has texts, numbers, true and false");
        value.push_back(*read);
      }
    } else if (const std::optional<json> read = plain(node)) {
      value = *read;
    } else {
      refuse_value(said, "is a date or a time; an option has texts, numbers, true and false");
    }
    entries.push_back({name, std::move(value), said});
  }
}

/// Throws DataError with the place where it is no TOML.
toml::table toml_table(const std::string& text, const std::string& file) {
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw DataError(file + ", line " + std::to_string(error.source().begin.line) + ", column " +
                    std::to_string(error.source().begin.column) + ": " + printable(std::string(error.description())));
  } catch (const TomlFault&) {
    throw DataError(file + " is no legal TOML");
  }
}

json tree_of(const toml::node& node, const std::string& file, int depth) {
  constexpr int deepest = 32;
  if (depth > deepest)
    refuse_value(file + ", line " + std::to_string(node.source().begin.line),
                 "nests deeper than " + std::to_string(deepest) + " levels");
  if (const toml::table* table = node.as_table()) {
    json object = json::object();
    for (const auto& [key, value] : *table) object[std::string(key.str())] = tree_of(value, file, depth + 1);
    return object;
  }
  if (const toml::array* list = node.as_array()) {
    json array = json::array();
    for (const toml::node& value : *list) array.push_back(tree_of(value, file, depth + 1));
    return array;
  }
  if (const std::optional<json> read = plain(node)) return *read;
  std::ostringstream text;  // dates and times
  node.visit([&](const auto& value) {
    if constexpr (toml::is_chronological<decltype(value)>) text << value.get();
  });
  return text.str();
}

std::vector<ConfigEntry> read_toml(const std::string& path) {
  const std::string text = read_text(path, most_bytes), file = printable(path);
  std::vector<ConfigEntry> entries;
  add_table(toml_table(text, file), "", file, 1, entries);
  // Tables are sorted by key; the file's order is that of the lines.
  const auto line = [&](const ConfigEntry& entry) { return std::strtol(entry.said.c_str() + file.size() + 7, nullptr, 10); };
  std::stable_sort(entries.begin(), entries.end(), [&](const ConfigEntry& a, const ConfigEntry& b) { return line(a) < line(b); });
  return entries;
}

/// The line of each key of a JSON text, which is known to be legal: the library's values do not know theirs.
class KeyLines final : public nlohmann::json_sax<json> {
 public:
  explicit KeyLines(const std::string& text) : text_(text), stream_(text) { json::sax_parse(stream_, this); }

  /// "ddp.bucket-size"
  std::int64_t of(const std::string& name) const { return lines_.at(name); }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    prefixes_.push_back(prefixes_.empty() ? "" : key_ + ".");
    return true;
  }
  bool end_object() override {
    prefixes_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool key(string_t& key) override {
    // The parser reads character by character and has read no further than the key.
    const std::streamoff read = stream_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in);
    line_ += std::count(text_.begin() + counted_, text_.begin() + read, '\n');
    counted_ = read;
    key_ = prefixes_.back() + key;
    lines_[key_] = line_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  const std::string& text_;
  std::istringstream stream_;
  std::vector<std::string> prefixes_;  // by object that is open
  std::string key_;                    // the last
  std::streamoff counted_ = 0;
  std::int64_t line_ = 1;
  std::map<std::string, std::int64_t> lines_;
};

void add_object(const json& object, const std::string& prefix, const std::string& file, const KeyLines& lines,
                std::vector<ConfigEntry>& entries) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix + key, said = file + ", line " + std::to_string(lines.of(name)) + ": " + printable(name);
    if (value.is_object()) {
      add_object(value, name + ".", file, lines, entries);
      continue;
    }
    const bool nested = value.is_array() &&
                        std::any_of(value.begin(), value.end(), [](const json& v) { return v.is_structured() || v.is_null(); });
    if (value.is_null() || nested)
      refuse_value(said, "is " + shown(value) + "; an option has texts, numbers, true and false, or a list of them");
    entries.push_back({name, value, said});
  }
}

std::vector<ConfigEntry> read_json_config(const std::string& path) {
  const std::string text = read_text(path, most_bytes), file = printable(path);
  const json whole =
      parse_json(text, file, {.most_bytes = most_bytes, .most_depth = most_depth, .repeated = JsonRules::Repeated::refused});
  if (!whole.is_object()) throw DataError(file + " is no JSON object");
  std::vector<ConfigEntry> entries;
  add_object(whole, "", file, KeyLines(text), entries);
  return entries;
}

bool is_bare_key(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; });
}

std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char c : text) {
    char escape[8];
    if (c == '"' || c == '\\') {
      (all += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      std::snprintf(escape, sizeof escape, "\\u%04X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      all += escape;
    } else {
      all += c;
    }
  }
  return all + "\"";
}

}  // namespace

std::vector<ConfigEntry> read_config_file(const std::string& path) {
  if (path.ends_with(".toml")) return read_toml(path);
  if (path.ends_with(".json")) return read_json_config(path);
  throw UsageError("--config " + path + ": its ending says no format; it must be .toml, .json, or .h5 for the archive of a run");
}

nlohmann::json parse_toml(const std::string& text, const std::string& name) {
  return tree_of(toml_table(text, name), name, 1);
}

std::string option_text(const OptionSpec& spec, const nlohmann::json& value, const ConfigEntry& entry) {
  if (entry.is_text && value.is_string()) return value.get<std::string>();
  const auto refuse_kind = [&](const std::string& legal) {
    throw UsageError(entry.said + " is " + shown(value) + "; it must be " + legal);
  };
  switch (spec.kind) {
    case OptionKind::flag:
      if (!value.is_boolean()) refuse_kind(legal_text(spec) + ", without quotes");
      return value.get<bool>() ? "true" : "false";
    case OptionKind::integer:
      if (!value.is_number_integer()) refuse_kind(legal_text(spec) + ", without quotes");
      break;
    case OptionKind::real:
      if (!value.is_number()) refuse_kind(legal_text(spec) + ", without quotes");
      break;
    case OptionKind::bytes:
      if (!value.is_number_integer() && !value.is_string()) refuse_kind(legal_text(spec));
      break;
    case OptionKind::text:
      if (!value.is_string()) refuse_kind("a text in quotes");
      break;
    case OptionKind::choice:
      if (!value.is_string() && !value.is_number_integer()) refuse_kind(legal_text(spec));
      break;
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string toml_value(const OptionSpec& spec, const std::string& value) {
  if (spec.kind == OptionKind::text || spec.kind == OptionKind::choice) return quoted(value);
  const bool is_whole = value == std::to_string(std::strtoll(value.c_str(), nullptr, 10));
  return spec.kind == OptionKind::real && !is_whole ? json(std::strtod(value.c_str(), nullptr)).dump()
                                                    : value;  // TOML has no ".5"
}

std::string toml_key(const std::string& name) {
  return is_bare_key(name) ? name : quoted(name);
}

}  // namespace consist
