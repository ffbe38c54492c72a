#include "datasets/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::jinja {
namespace {

constexpr int most_depth = 64;  // of what is printed

/// Writes values; the text's origin is the first that the value has.
class Writer {
 public:
  explicit Writer(std::size_t room) : room_(room) {}

  void add(std::string_view bytes) {
    if (out_.bytes.size() + bytes.size() > room_) throw DataError("it writes more than " + std::to_string(room_ >> 20) + " MiB");
    out_.bytes += bytes;
  }
  Text finish(const Value& value) {
    const std::int32_t origin = origin_of(value);
    if (origin != no_origin) out_.marks = {{0, out_.bytes.size(), origin}};
    return std::move(out_);
  }

  /// As str(); `nested`: within a list or an object, as repr().
  void print(const Value& value, bool nested, int depth = 0) {
    check(depth);
    if (const Text* text = value.as_text()) return add(nested ? python_repr(text->bytes) : text->bytes);
    if (const bool* b = value.as_bool()) return add(*b ? "True" : "False");
    if (value.is_none()) return add("None");
    if (value.is_undefined()) return add(nested ? "Undefined" : "");
    if (add_number(value)) return;
    if (const List* list = value.as_list()) return print_list(*list, depth);
    const Dict* dict = value.as_dict();
    if (dict == nullptr) throw DataError("it prints a function");
    add("{");
    bool first = true;
    for (const auto& [key, item] : dict->entries) {
      add(first ? "" : ", ");
      add(python_repr(key) + ": ");
      print(item, true, depth + 1);
      first = false;
    }
    mark_read(*dict);
    add("}");
  }

  void json(const Value& value, const JsonStyle& style, int depth = 0) {
    check(depth);
    if (const Text* text = value.as_text()) return quote(text->bytes, style.ascii);
    if (const bool* b = value.as_bool()) return add(*b ? "true" : "false");
    if (value.is_none()) return add("null");
    if (const double* real = value.as_real(); real != nullptr && !std::isfinite(*real))
      return add(std::isnan(*real) ? "NaN" : (*real > 0 ? "Infinity" : "-Infinity"));
    if (add_number(value)) return;
    if (const List* list = value.as_list()) {
      add("[");
      bool first = true;
      for (const Value& item : list->items) {
        between(style, first, depth + 1);
        json(item, style, depth + 1);
      }
      return close("]", style, first, depth);
    }
    const Dict* dict = value.as_dict();
    if (dict == nullptr) throw DataError(std::string("tojson cannot write ") + value.kind());
    add("{");
    bool first = true;
    for (const std::size_t entry : order_of(*dict, style.sorted)) {
      between(style, first, depth + 1);
      quote(dict->entries[entry].first, style.ascii);
      add(style.colon);
      json(dict->entries[entry].second, style, depth + 1);
    }
    mark_read(*dict);
    close("}", style, first, depth);
  }

 private:
  static void check(int depth) {
    if (depth > most_depth) throw DataError("a value is nested more than " + std::to_string(most_depth) + " deep");
  }
  static void mark_read(const Dict& dict) { dict.read.assign(dict.entries.size(), true); }
  static std::vector<std::size_t> order_of(const Dict& dict, bool sorted) {
    std::vector<std::size_t> order(dict.entries.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (sorted)
      std::sort(order.begin(), order.end(), [&](auto a, auto b) { return dict.entries[a].first < dict.entries[b].first; });
    return order;
  }
  void print_list(const List& list, int depth) {
    add(list.is_tuple ? "(" : "[");
    bool first = true;
    for (const Value& item : list.items) {
      add(first ? "" : ", ");
      print(item, true, depth + 1);
      first = false;
    }
    add(list.is_tuple ? (list.items.size() == 1 ? ",)" : ")") : "]");
  }
  bool add_number(const Value& value) {
    if (const std::int64_t* integer = value.as_integer()) return add(std::to_string(*integer)), true;
    if (const double* real = value.as_real()) return add(python_float(*real)), true;
    return false;
  }
  void between(const JsonStyle& style, bool& first, int depth) {
    if (!first) add(style.comma);
    first = false;
    if (style.indent >= 0) add("\n" + std::string(static_cast<std::size_t>(style.indent * depth), ' '));
  }
  void close(const char* bracket, const JsonStyle& style, bool empty, int depth) {
    if (style.indent >= 0 && !empty) add("\n" + std::string(static_cast<std::size_t>(style.indent * depth), ' '));
    add(bracket);
  }
  void quote(std::string_view text, bool ascii) {
    std::string out = "\"";
    std::size_t length = 0;
    char escaped[16];
    for (std::size_t at = 0; at < text.size(); at += length) {
      const char32_t c = tokenizer::read_utf8(text, at, length);
      static constexpr char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
      if (const char* found = c < 0x80 && c != 0 ? std::strchr(plain, static_cast<char>(c)) : nullptr) {
        (out += '\\') += letters[found - plain];
      } else if (c < 0x20) {
        std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
        out += escaped;
      } else if (ascii && c > 0x7e && c != 0x7f) {
        if (c < 0x10000) {
          std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
        } else {
          const auto rest = static_cast<unsigned>(c - 0x10000);
          std::snprintf(escaped, sizeof escaped, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ffU));
        }
        out += escaped;
      } else {
        out += text.substr(at, length);
      }
    }
    add(out + "\"");
  }

  std::size_t room_;
  Text out_;
};

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].first != key) continue;
    if (read.size() < entries.size()) read.resize(entries.size());
    read[i] = true;
    return &entries[i].second;
  }
  return nullptr;
}

void Dict::set(const std::string& key, Value value) {
  for (auto& [name, held] : entries) {
    if (name != key) continue;
    held = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
}

bool Value::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number_of(*this) != 0;
  if (const Text* text = as_text()) return !text->bytes.empty();
  if (const List* list = as_list()) return !list->items.empty();
  if (const Dict* dict = as_dict()) return dict->is_namespace || !dict->entries.empty();
  return true;
}

const char* Value::kind() const {
  static constexpr const char* kinds[] = {"undefined", "none",   "true or false", "an integer", "a number",
                                          "a text",    "a list", "an object",     "a function"};
  return kinds[v.index()];
}

Value from_json(const nlohmann::ordered_json& json, std::int32_t origin) {
  using Kind = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Kind::boolean:
      return json.get<bool>();
    case Kind::number_integer:
      return json.get<std::int64_t>();
    case Kind::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX) throw DataError("the integer " + json.dump() + " has more than 64 bits");
      return static_cast<std::int64_t>(json.get<std::uint64_t>());
    case Kind::number_float:
      return json.get<double>();
    case Kind::string:
      return Value::text(json.get<std::string>(), origin);
    case Kind::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(from_json(item, origin));
      return Value::list(std::move(items), origin);
    }
    case Kind::object: {
      auto dict = std::make_shared<Dict>();
      dict->origin = origin;
      for (const auto& [key, item] : json.items()) dict->entries.emplace_back(key, from_json(item, origin));
      return dict;
    }
    default:
      return None{};
  }
}

double number_of(const Value& value) {
  if (const bool* b = value.as_bool()) return *b ? 1 : 0;
  if (const std::int64_t* integer = value.as_integer()) return static_cast<double>(*integer);
  if (const double* real = value.as_real()) return *real;
  throw DataError(std::string("it calculates with ") + value.kind());
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.as_integer() != nullptr && b.as_integer() != nullptr) return *a.as_integer() == *b.as_integer();
    return number_of(a) == number_of(b);
  }
  if (a.v.index() != b.v.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (const Text* text = a.as_text()) return text->bytes == b.as_text()->bytes;
  if (const List* list = a.as_list())
    return std::equal(list->items.begin(), list->items.end(), b.as_list()->items.begin(), b.as_list()->items.end(), equal);
  if (const Dict* dict = a.as_dict()) {
    const Dict* other = b.as_dict();
    return dict->entries.size() == other->entries.size() &&
           std::all_of(dict->entries.begin(), dict->entries.end(), [&](const auto& e) {
             const Value* same = other->find(e.first);
             return same != nullptr && equal(e.second, *same);
           });
  }
  return a.as_function() == b.as_function();
}

int compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const double x = number_of(a), y = number_of(b);
    return x < y ? -1 : (x > y ? 1 : 0);
  }
  if (a.as_text() != nullptr && b.as_text() != nullptr) {
    const int order = a.as_text()->bytes.compare(b.as_text()->bytes);  // of UTF-8: by code point
    return order < 0 ? -1 : (order > 0 ? 1 : 0);
  }
  if (a.as_list() != nullptr && b.as_list() != nullptr) {
    const auto &x = a.as_list()->items, &y = b.as_list()->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return compare(x[i], y[i]);
    }
    return x.size() < y.size() ? -1 : (x.size() > y.size() ? 1 : 0);
  }
  throw DataError(std::string("it compares ") + a.kind() + " with " + b.kind());
}

std::int32_t origin_of(const Value& value) {
  if (const Text* text = value.as_text()) return origin_of(*text);
  if (const List* list = value.as_list()) {
    if (list->origin != no_origin) return list->origin;
    for (const Value& item : list->items) {
      if (const std::int32_t origin = origin_of(item); origin != no_origin) return origin;
    }
  }
  if (const Dict* dict = value.as_dict()) {
    if (dict->origin != no_origin) return dict->origin;
    for (const auto& [key, item] : dict->entries) {
      if (const std::int32_t origin = origin_of(item); origin != no_origin) return origin;
    }
  }
  return no_origin;
}

Text printed(const Value& value, std::size_t room) {
  if (const Text* text = value.as_text()) return *text;
  Writer writer(room);
  writer.print(value, false);
  return writer.finish(value);
}

Text to_json(const Value& value, const JsonStyle& style, std::size_t room) {
  Writer writer(room);
  writer.json(value, style);
  return writer.finish(value);
}

}  // namespace consist::jinja
