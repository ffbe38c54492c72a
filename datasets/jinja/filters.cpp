// Filters: `|trim`, `|tojson`, ...
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "consist/error.h"
#include "datasets/jinja/builtins.h"

namespace consist::jinja {
namespace {

using Filter = Value (*)(Budget&, const Value&, const Arguments&);

Text shown_text(Budget& budget, const Value& value) {
  Text text = printed(value, budget.room());
  budget.text(text.bytes.size());
  return text;
}

Value trim(Budget& budget, const Value& of, const Arguments& a) {
  a.check(1, "chars", "trim");
  const Text text = shown_text(budget, of);
  const Value* const given = a.find(0, "chars");
  const bool has = given != nullptr && !given->is_none();
  const auto [begin, end] = stripped_range(text.bytes, has ? &text_in(*given, "trim").bytes : nullptr, true, true);
  return Value::text(part_of(text, begin, end));
}

Value length(Budget& budget, const Value& of, const Arguments& a) {
  a.check(0, "", "length");
  if (of.is_undefined()) return std::int64_t{0};
  if (const Text* text = of.as_text()) {
    budget.step(static_cast<std::int64_t>(text->bytes.size() / 32));
    return static_cast<std::int64_t>(length_of(text->bytes));
  }
  if (const List* list = of.as_list()) return static_cast<std::int64_t>(list->items.size());
  if (const Dict* dict = of.as_dict()) return static_cast<std::int64_t>(dict->entries.size());
  refuse("length", of);
}

Value tojson(Budget& budget, const Value& of, const Arguments& a) {
  a.check(4, "ensure_ascii,indent,separators,sort_keys", "tojson");
  if (of.is_undefined()) refuse("tojson", of);
  JsonStyle style;
  // By its place the first is ensure_ascii, as transformers has it.
  if (const Value* ascii = a.find(0, "ensure_ascii")) style.ascii = ascii->is_true();
  if (const Value* indent = a.find(1, "indent"); indent != nullptr && !indent->is_none()) {
    style.indent = static_cast<int>(std::clamp<std::int64_t>(integer_in(*indent, "tojson"), 0, 64));
    style.comma.assign(1, ',');
  }
  if (const Value* signs = a.find(2, "separators"); signs != nullptr && !signs->is_none()) {
    const std::vector<Value> two = items_of(budget, *signs);
    if (two.size() != 2) throw DataError("tojson's separators are two texts");
    style.comma = text_in(two[0], "tojson").bytes;
    style.colon = text_in(two[1], "tojson").bytes;
  }
  if (const Value* sorted = a.find(3, "sort_keys")) style.sorted = sorted->is_true();
  Text text = to_json(of, style, budget.room());
  budget.text(8 * text.bytes.size() > budget.room() ? text.bytes.size() : 8 * text.bytes.size());
  return Value::text(std::move(text));
}

Value default_value(Budget&, const Value& of, const Arguments& a) {
  a.check(2, "default_value,boolean", "default");
  const Value* const boolean = a.find(1, "boolean");
  if (!of.is_undefined() && (boolean == nullptr || !boolean->is_true() || of.is_true())) return of;
  const Value* const value = a.find(0, "default_value");
  return value != nullptr ? *value : Value::text("");
}

Value replace(Budget& budget, const Value& of, const Arguments& a) {
  const Value text = Value::text(shown_text(budget, of));
  return method_of(text, "replace")->as_function()->call(budget, a);
}

Value indent(Budget& budget, const Value& of, const Arguments& a) {
  a.check(3, "width,first,blank", "indent");
  const Value *const width = a.find(0, "width"), *const first = a.find(1, "first"), *const blank = a.find(2, "blank");
  const std::string space =
      width == nullptr ? "    "
      : width->as_text() != nullptr
          ? width->as_text()->bytes
          : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(integer_in(*width, "indent"), 0, 1000)), ' ');
  const Text text = shown_text(budget, of);
  Text made;
  for (std::size_t begin = 0; begin <= text.bytes.size();) {
    const std::size_t end = std::min(text.bytes.find('\n', begin), text.bytes.size());
    const bool is_first = begin == 0, is_blank = end == begin;
    if (is_first ? first != nullptr && first->is_true() : !is_blank || (blank != nullptr && blank->is_true()))
      append(made, space);
    append(made, part_of(text, begin, std::min(end + 1, text.bytes.size())));
    budget.text(space.size() + end - begin);
    if (made.bytes.size() > budget.room()) budget.text(made.bytes.size());
    begin = end + 1;
  }
  return Value::text(std::move(made));
}

Value escape(Budget& budget, const Value& of, const Arguments&) {
  const Text text = shown_text(budget, of);
  Text made;
  for (std::size_t at = 0; at < text.bytes.size(); ++at) {
    const char c = text.bytes[at];
    const char* const instead =
        c == '&' ? "&amp;" : (c == '<' ? "&lt;" : (c == '>' ? "&gt;" : (c == '"' ? "&#34;" : (c == '\'' ? "&#39;" : nullptr))));
    if (instead == nullptr) {
      append(made, part_of(text, at, at + 1));
    } else {
      append(made, text_from(instead, origin_of(part_of(text, at, at + 1))));
    }
  }
  return Value::text(std::move(made));
}

Value to_int(Budget&, const Value& of, const Arguments& a) {
  const Value* const otherwise = a.find(0, "default");
  const Value fallback = otherwise != nullptr ? *otherwise : Value(std::int64_t{0});
  if (of.as_real() != nullptr)
    return std::fabs(*of.as_real()) < 9e18 ? Value(static_cast<std::int64_t>(*of.as_real())) : fallback;
  if (of.is_number()) return integer_in(of, "int");
  const Text* const text = of.as_text();
  if (text == nullptr) return fallback;
  const auto [begin, end] = stripped_range(text->bytes, nullptr, true, true);
  std::int64_t number = 0;
  const char *const first = text->bytes.data() + begin, *const last = text->bytes.data() + end;
  if (const auto read = std::from_chars(first, last, number); read.ec == std::errc() && read.ptr == last && first != last)
    return number;
  double real = 0;
  if (const auto read = std::from_chars(first, last, real);
      read.ec == std::errc() && read.ptr == last && first != last && std::fabs(real) < 9e18)
    return static_cast<std::int64_t>(real);
  return fallback;
}

Value to_float(Budget&, const Value& of, const Arguments& a) {
  const Value* const otherwise = a.find(0, "default");
  if (of.is_number()) return number_of(of);
  double real = 0;
  if (const Text* text = of.as_text()) {
    const auto [begin, end] = stripped_range(text->bytes, nullptr, true, true);
    const auto read = std::from_chars(text->bytes.data() + begin, text->bytes.data() + end, real);
    if (read.ec == std::errc() && read.ptr == text->bytes.data() + end && begin != end) return real;
  }
  return otherwise != nullptr ? *otherwise : Value(0.0);
}

Value absolute(Budget&, const Value& of, const Arguments&) {
  if (of.as_real() != nullptr) return std::fabs(*of.as_real());
  const std::int64_t number = integer_in(of, "abs");
  if (number == INT64_MIN) throw DataError("a number has more than 64 bits");
  return number < 0 ? -number : number;
}

Value rounded(Budget&, const Value& of, const Arguments& a) {
  a.check(2, "precision,method", "round");
  const Value *const precision = a.find(0, "precision"), *const method = a.find(1, "method");
  const double scale = std::pow(10.0, precision == nullptr ? 0.0 : static_cast<double>(integer_in(*precision, "round"))),
               value = number_of(of) * scale;
  const std::string how = method == nullptr ? "common" : text_in(*method, "round").bytes;
  return (how == "ceil" ? std::ceil(value) : (how == "floor" ? std::floor(value) : std::nearbyint(value))) / scale;
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> all{
      {"trim", trim},
      {"length", length},
      {"count", length},
      {"tojson", tojson},
      {"default", default_value},
      {"d", default_value},
      {"replace", replace},
      {"indent", indent},
      {"escape", escape},
      {"e", escape},
      {"int", to_int},
      {"float", to_float},
      {"abs", absolute},
      {"round", rounded},
      {"upper", [](Budget& b, const Value& v, const Arguments&) { return Value::text(with_case(shown_text(b, v), true)); }},
      {"lower", [](Budget& b, const Value& v, const Arguments&) { return Value::text(with_case(shown_text(b, v), false)); }},
      {"capitalize", [](Budget& b, const Value& v, const Arguments&) { return Value::text(capitalized(shown_text(b, v))); }},
      {"title", [](Budget& b, const Value& v,
                   const Arguments& a) { return method_of(Value::text(shown_text(b, v)), "title")->as_function()->call(b, a); }},
      {"string", [](Budget& b, const Value& v, const Arguments&) { return Value::text(shown_text(b, v)); }},
      {"safe", [](Budget&, const Value& v, const Arguments&) { return v; }},
  };
  return all;
}

}  // namespace

bool is_filter(std::string_view name) {
  return filters().contains(name) || is_list_filter(name);
}

Value apply_filter(Budget& budget, const std::string& name, const Value& of, const Arguments& arguments) {
  budget.step();
  if (is_list_filter(name)) return apply_list_filter(budget, name, of, arguments);
  const auto found = filters().find(name);
  if (found == filters().end()) throw DataError("there is no filter '" + name + "' here");
  return found->second(budget, of, arguments);
}

}  // namespace consist::jinja
