#include "consist/json_input.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/text.h"

namespace consist {
namespace {

using nlohmann::json;

/// Builds the value event by event. The library's own ways to watch a parser (callbacks) visit all elements of an object again
/// after each of its members, which makes large headers quadratic.
class Events : public nlohmann::json_sax<json> {
 public:
  Events(const std::string& name, const JsonRules& rules) : name_(name), rules_(rules) {}

  json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    const auto [place, is_new] = open_.back()->get_ref<json::object_t&>().emplace(std::move(key), nullptr);
    member_ = &place->second;
    keys_.back() = &place->first;
    if (!is_new && rules_.repeated == JsonRules::Repeated::refused) throw DataError(name_ + " has " + path() + " twice");
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
    std::string what = error.what();
    if (const std::size_t label = what.find("] "); what.starts_with("[json.") && label != std::string::npos)
      what.erase(0, label + 2);
    throw DataError(name_ + " is no valid JSON: " + printable(what.substr(0, 300)));
  }

 private:
  json* place(json&& value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (member_ != nullptr) return &(*std::exchange(member_, nullptr) = std::move(value));
    auto& list = open_.back()->get_ref<json::array_t&>();
    list.push_back(std::move(value));
    return &list.back();
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json&& value) {
    if (std::cmp_greater_equal(open_.size(), rules_.most_depth)) {
      throw DataError(name_ + " is nested deeper than the " + std::to_string(rules_.most_depth) +
                      " levels that such a file may have" + (path().empty() ? "" : ", at " + path()));
    }
    open_.push_back(place(std::move(value)));
    keys_.push_back(nullptr);
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }
  /// The keys that lead to where the parser is: "zero_optimization.stage", in quotes.
  std::string path() const {
    std::string path;
    for (const std::string* key : keys_) {
      if (key != nullptr) path += (path.empty() ? "" : ".") + *key;
    }
    return path.empty() ? path : in_quotes(path);
  }

  const std::string& name_;
  const JsonRules& rules_;
  json root_;
  // Members of objects stay where they are; a list grows only while none of its elements is open.
  std::vector<json*> open_;
  std::vector<const std::string*> keys_;  // one for each that is open; null in lists
  json* member_ = nullptr;                // of the innermost object: where its next value goes
};

/// `text` with spaces in place of comments and of commas behind a last element, so that positions stay.
std::string without_comments(std::string_view text) {
  std::string plain(text);
  char last = '{';        // of what is no space or comment
  std::size_t comma = 0;  // where it is, if `last` is a comma behind a value
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const char c = rest[0];
    if (c == '#' || rest.starts_with("//") || rest.starts_with("/*")) {
      const bool block = rest.starts_with("/*");
      const std::size_t end = block ? rest.find("*/", 2) : rest.find('\n');
      if (block && end == std::string_view::npos) break;  // the parser refuses it
      const std::size_t length = end == std::string_view::npos ? rest.size() : end + (block ? 2 : 0);
      std::replace_if(
          plain.begin() + static_cast<std::ptrdiff_t>(at), plain.begin() + static_cast<std::ptrdiff_t>(at + length),
          [](char hidden) { return hidden != '\n'; }, ' ');
      at += length;
      continue;
    }
    std::size_t length = 1;
    if (c == '"') {
      while (length < rest.size() && rest[length] != '"') length += rest[length] == '\\' ? 2 : 1;
      length = std::min(length + 1, rest.size());
    } else if (c == ',' && last != ',' && last != '{' && last != '[') {
      comma = at;
    } else if (c == ',') {
      break;  // nothing before it: the parser refuses it
    } else if ((c == '}' || c == ']') && last == ',') {
      plain[comma] = ' ';
    }
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') last = c;
    at += length;
  }
  return plain;
}

}  // namespace

json parse_json(std::string_view text, const std::string& name, const JsonRules& rules) {
  if (std::cmp_greater(text.size(), rules.most_bytes)) {
    throw DataError(name + " has " + std::to_string(text.size()) + " bytes, more than the " + std::to_string(rules.most_bytes) +
                    " that such a file may have");
  }
  Events events(name, rules);
  if (rules.comments) {
    json::sax_parse(without_comments(text), &events);
  } else {
    json::sax_parse(text, &events);
  }
  return events.take();
}

json read_json(const std::string& path, const JsonRules& rules) {
  return parse_json(read_text(path, rules.most_bytes), path, rules);
}

std::string shown(const json& value, std::size_t most) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > most) {
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  return printable(text);
}

}  // namespace consist
