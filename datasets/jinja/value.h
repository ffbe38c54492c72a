// Values of the interpreter, after Python's.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "datasets/jinja/text.h"

namespace consist::jinja {

class Value;
struct Function;

/// Objects and lists of JSON, and those that a program makes. Shared and not changed, but for a namespace.
struct List {
  std::vector<Value> items;
  std::int32_t origin = no_origin;
  bool is_tuple = false;
};
struct Dict {
  std::vector<std::pair<std::string, Value>> entries;  // in order
  std::int32_t origin = no_origin;
  bool is_namespace = false;
  mutable std::vector<bool> read = {};  ///< by entry: the program has asked for it

  /// Null if there is none; marks it as read.
  const Value* find(std::string_view key) const;
  void set(const std::string& key, Value value);
};

struct Undefined {
  std::string name;  ///< for messages
};
struct None {};

class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                               std::shared_ptr<const List>, std::shared_ptr<Dict>, std::shared_ptr<const Function>>;
  Value() = default;
  template <typename T>
  requires(!std::is_same_v<std::decay_t<T>, Value>) Value(T value)
      : v(std::move(value)) {}  // NOLINT(google-explicit-constructor): each of the kinds is a value

  static Value undefined(std::string name) { return Undefined{std::move(name)}; }
  static Value text(std::string bytes, std::int32_t origin = no_origin) {
    return std::make_shared<const Text>(text_from(std::move(bytes), origin));
  }
  static Value text(Text text) { return std::make_shared<const Text>(std::move(text)); }
  static Value list(std::vector<Value> items, std::int32_t origin = no_origin, bool is_tuple = false) {
    return std::make_shared<const List>(List{std::move(items), origin, is_tuple});
  }

  bool is_undefined() const { return std::holds_alternative<Undefined>(v); }
  bool is_none() const { return std::holds_alternative<None>(v); }
  const bool* as_bool() const { return std::get_if<bool>(&v); }
  const std::int64_t* as_integer() const { return std::get_if<std::int64_t>(&v); }
  const double* as_real() const { return std::get_if<double>(&v); }
  const Text* as_text() const { return pointed<std::shared_ptr<const Text>>(); }
  const List* as_list() const { return pointed<std::shared_ptr<const List>>(); }
  Dict* as_dict() const {
    const auto* p = std::get_if<std::shared_ptr<Dict>>(&v);
    return p == nullptr ? nullptr : p->get();
  }
  const Function* as_function() const { return pointed<std::shared_ptr<const Function>>(); }
  bool is_number() const { return as_bool() != nullptr || as_integer() != nullptr || as_real() != nullptr; }

  bool is_true() const;
  /// "a text", "a list", as messages name it.
  const char* kind() const;

  Variant v;

 private:
  template <typename Pointer>
  auto pointed() const -> decltype(std::declval<Pointer>().get()) {
    const auto* p = std::get_if<Pointer>(&v);
    return p == nullptr ? nullptr : p->get();
  }
};

/// A value of JSON whose texts all come from `origin`. Throws DataError for an integer beyond 64 bits.
Value from_json(const nlohmann::ordered_json& json, std::int32_t origin = no_origin);

bool equal(const Value& a, const Value& b);
/// -1, 0, 1. Throws DataError for kinds that have no order.
int compare(const Value& a, const Value& b);
/// A number, true as 1.
double number_of(const Value& value);
/// The origin of a text, list or object, of itself or of the first value inside that has one.
std::int32_t origin_of(const Value& value);

/// As Python's str() and as json.dumps() of transformers' tojson write a value; `room` bytes at most, else DataError.
Text printed(const Value& value, std::size_t room);
struct JsonStyle {
  int indent = -1;  ///< none
  bool ascii = false, sorted = false;
  std::string comma = ", ", colon = ": ";
};
Text to_json(const Value& value, const JsonStyle& style, std::size_t room);

}  // namespace consist::jinja
