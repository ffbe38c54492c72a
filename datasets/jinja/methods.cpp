// Methods of texts, lists and objects, as Python has them; none that changes its object.
#include <utf8proc.h>

#include <algorithm>
#include <map>

#include "consist/error.h"
#include "datasets/jinja/builtins.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::jinja {
namespace {

using TextMethod = Value (*)(Budget&, const Text&, const Arguments&);

template <typename Change>
Text by_character(const Text& text, Change change) {
  Text made;
  std::size_t length = 0;
  for (std::size_t at = 0; at < text.bytes.size(); at += length) {
    const char32_t c = tokenizer::read_utf8(text.bytes, at, length);
    Text part = part_of(text, at, at + length);
    const char32_t changed = change(c, at);
    if (c == 0xdf && changed != c) {
      part.bytes = "SS";
    } else if (changed != c) {
      part.bytes.clear();
      tokenizer::append_utf8(part.bytes, changed);
    }
    for (Mark& mark : part.marks) mark.end = mark.end == mark.begin ? mark.begin : part.bytes.size();
    append(made, part);
  }
  // Marks of neighbours become one again.
  std::vector<Mark> joined;
  for (const Mark& mark : made.marks) {
    if (!joined.empty() && joined.back().origin == mark.origin && joined.back().end == mark.begin) {
      joined.back().end = mark.end;
    } else {
      joined.push_back(mark);
    }
  }
  made.marks = text.bytes.empty() ? text.marks : joined;
  return made;
}

char32_t upper(char32_t c) {
  return c == 0xdf ? 'S' : static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

template <bool left, bool right>
Value strip(Budget&, const Text& text, const Arguments& arguments) {
  arguments.check(1, "", "strip");
  const Value* const given = arguments.find(0, "");
  const bool has = given != nullptr && !given->is_none();
  const auto [begin, end] = stripped_range(text.bytes, has ? &text_in(*given, "strip").bytes : nullptr, left, right);
  return Value::text(part_of(text, begin, end));
}

std::vector<Value> split_at_space(const Text& text, std::int64_t most) {
  std::vector<Value> parts;
  std::size_t at = 0;
  while (true) {
    at += stripped_range(std::string_view(text.bytes).substr(at), nullptr, true, false).first;
    if (at >= text.bytes.size()) return parts;
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(Value::text(part_of(text, at, stripped_range(text.bytes, nullptr, false, true).second)));
      return parts;
    }
    std::size_t end = at, length = 0;
    for (; end < text.bytes.size() && !is_space(tokenizer::read_utf8(text.bytes, end, length)); end += length) {
    }
    parts.push_back(Value::text(part_of(text, at, end)));
    at = end;
  }
}

Value split(Budget& budget, const Text& text, const Arguments& arguments) {
  arguments.check(2, "sep,maxsplit", "split");
  budget.text(text.bytes.size());
  const Value *const separator = arguments.find(0, "sep"), *const limit = arguments.find(1, "maxsplit");
  const std::int64_t most = limit == nullptr ? -1 : integer_in(*limit, "split");
  if (separator == nullptr || separator->is_none()) return Value::list(split_at_space(text, most));
  const std::string& sign = text_in(*separator, "split").bytes;
  if (sign.empty()) throw DataError("split is given an empty text");
  std::vector<Value> parts;
  std::size_t begin = 0;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t end = text.bytes.find(sign, begin);
    if (end == std::string::npos) break;
    budget.step();
    parts.push_back(Value::text(part_of(text, begin, end)));
    begin = end + sign.size();
  }
  parts.push_back(Value::text(part_of(text, begin, text.bytes.size())));
  return Value::list(std::move(parts));
}

Value rsplit(Budget& budget, const Text& text, const Arguments& arguments) {
  arguments.check(2, "sep,maxsplit", "rsplit");
  const Value* const limit = arguments.find(1, "maxsplit");
  if (limit == nullptr) return split(budget, text, arguments);
  const std::string& sign = text_in(arguments.need(0, "sep", "rsplit"), "rsplit").bytes;
  if (sign.empty()) throw DataError("rsplit is given an empty text");
  std::vector<Value> parts;
  std::size_t end = text.bytes.size();
  for (std::int64_t left = integer_in(*limit, "rsplit"); left != 0 && end >= sign.size(); --left) {
    const std::size_t begin = text.bytes.rfind(sign, end - sign.size());
    if (begin == std::string::npos) break;
    parts.push_back(Value::text(part_of(text, begin + sign.size(), end)));
    end = begin;
  }
  parts.push_back(Value::text(part_of(text, 0, end)));
  std::reverse(parts.begin(), parts.end());
  return Value::list(std::move(parts));
}

Value splitlines(Budget& budget, const Text& text, const Arguments& arguments) {
  arguments.check(0, "", "splitlines");
  budget.text(text.bytes.size());
  std::vector<Value> lines;
  std::size_t begin = 0;
  while (begin < text.bytes.size()) {
    const std::size_t end = std::min(text.bytes.find_first_of("\n\r\v\f", begin), text.bytes.size());
    lines.push_back(Value::text(part_of(text, begin, end)));
    begin = end + (text.bytes.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return Value::list(std::move(lines));
}

template <bool at_end>
Value starts_or_ends(Budget&, const Text& text, const Arguments& arguments) {
  const std::string of = at_end ? "endswith" : "startswith";
  arguments.check(1, "", of);
  const Value& given = arguments.need(0, "", of);
  const auto holds = [&](const Value& one) {
    const std::string& sign = text_in(one, of).bytes;
    return at_end ? text.bytes.ends_with(sign) : text.bytes.starts_with(sign);
  };
  const List* const several = given.as_list();
  return several != nullptr ? std::any_of(several->items.begin(), several->items.end(), holds) : holds(given);
}

Value replace(Budget& budget, const Text& text, const Arguments& arguments) {
  arguments.check(3, "count", "replace");
  const std::string& old = text_in(arguments.need(0, "old", "replace"), "replace").bytes;
  const Text& instead = text_in(arguments.need(1, "new", "replace"), "replace");
  const Value* const limit = arguments.find(2, "count");
  std::int64_t left = limit == nullptr || limit->is_none() ? -1 : integer_in(*limit, "replace");
  if (old.empty()) throw DataError("replace of an empty text is not supported");
  Text made;
  std::size_t begin = 0;
  for (; left != 0; --left) {
    const std::size_t end = text.bytes.find(old, begin);
    if (end == std::string::npos) break;
    append(made, part_of(text, begin, end));
    append(made, instead);
    budget.text(end - begin + instead.bytes.size());
    if (made.bytes.size() > budget.room()) budget.text(made.bytes.size());
    begin = end + old.size();
  }
  append(made, part_of(text, begin, text.bytes.size()));
  budget.text(made.bytes.size());
  return Value::text(std::move(made));
}

template <bool last>
Value find(Budget& budget, const Text& text, const Arguments& arguments) {
  arguments.check(1, "", "find");
  budget.text(text.bytes.size());
  const std::string& sign = text_in(arguments.need(0, "", "find"), "find").bytes;
  const std::size_t at = last ? text.bytes.rfind(sign) : text.bytes.find(sign);
  if (at == std::string::npos) return std::int64_t{-1};
  return static_cast<std::int64_t>(length_of(std::string_view(text.bytes).substr(0, at)));
}

Value count(Budget& budget, const Text& text, const Arguments& arguments) {
  arguments.check(1, "", "count");
  budget.text(text.bytes.size());
  const std::string& sign = text_in(arguments.need(0, "", "count"), "count").bytes;
  if (sign.empty()) return static_cast<std::int64_t>(length_of(text.bytes) + 1);
  std::int64_t found = 0;
  for (std::size_t at = text.bytes.find(sign); at != std::string::npos; at = text.bytes.find(sign, at + sign.size())) ++found;
  return found;
}

Value join(Budget& budget, const Text& text, const Arguments& arguments) {
  arguments.check(1, "", "join");
  Text made;
  bool first = true;
  for (const Value& item : items_of(budget, arguments.need(0, "", "join"))) {
    if (!std::exchange(first, false)) append(made, text);
    append(made, text_in(item, "join"));
    budget.text(text.bytes.size() + item.as_text()->bytes.size());
    if (made.bytes.size() > budget.room()) budget.text(made.bytes.size());
  }
  return Value::text(std::move(made));
}

template <bool at_end>
Value remove_fix(Budget&, const Text& text, const Arguments& arguments) {
  const std::string& sign = text_in(arguments.need(0, "", at_end ? "removesuffix" : "removeprefix"), "removeprefix").bytes;
  const std::size_t size = text.bytes.size();
  if (at_end) return Value::text(text.bytes.ends_with(sign) ? part_of(text, 0, size - sign.size()) : text);
  return Value::text(text.bytes.starts_with(sign) ? part_of(text, sign.size(), size) : text);
}

template <bool (*holds)(char32_t)>
Value all_are(Budget& budget, const Text& text, const Arguments&) {
  budget.text(text.bytes.size());
  std::size_t length = 0;
  for (std::size_t at = 0; at < text.bytes.size(); at += length) {
    if (!holds(tokenizer::read_utf8(text.bytes, at, length))) return false;
  }
  return !text.bytes.empty();
}
bool is_letter_or_digit(char32_t c) {
  return is_letter(c) || is_digit(c);
}

/// isupper and islower: a letter of that case, and none of the other.
template <bool of_upper>
Value is_case(Budget&, const Text& text, const Arguments&) {
  const bool has_upper = with_case(text, false).bytes != text.bytes, has_lower = with_case(text, true).bytes != text.bytes;
  return of_upper ? has_upper && !has_lower : has_lower && !has_upper;
}

Text titled(const Text& text) {
  bool in_word = false;
  return by_character(text, [&](char32_t c, std::size_t) {
    const bool was = std::exchange(in_word, is_letter(c));
    return was ? lower(c) : upper(c);
  });
}

const std::map<std::string_view, TextMethod>& text_methods() {
  static const std::map<std::string_view, TextMethod> all{
      {"strip", strip<true, true>},
      {"lstrip", strip<true, false>},
      {"rstrip", strip<false, true>},
      {"split", split},
      {"rsplit", rsplit},
      {"splitlines", splitlines},
      {"startswith", starts_or_ends<false>},
      {"endswith", starts_or_ends<true>},
      {"replace", replace},
      {"find", find<false>},
      {"rfind", find<true>},
      {"count", count},
      {"join", join},
      {"removeprefix", remove_fix<false>},
      {"removesuffix", remove_fix<true>},
      {"isdigit", all_are<is_digit>},
      {"isalpha", all_are<is_letter>},
      {"isalnum", all_are<is_letter_or_digit>},
      {"isspace", all_are<is_space>},
      {"isupper", is_case<true>},
      {"islower", is_case<false>},
      {"upper", [](Budget&, const Text& text, const Arguments&) { return Value::text(with_case(text, true)); }},
      {"lower", [](Budget&, const Text& text, const Arguments&) { return Value::text(with_case(text, false)); }},
      {"title", [](Budget&, const Text& text, const Arguments&) { return Value::text(titled(text)); }},
      {"capitalize", [](Budget&, const Text& text, const Arguments&) { return Value::text(capitalized(text)); }},
  };
  return all;
}

Value pair_of(const std::pair<std::string, Value>& entry) {
  return Value::list({Value::text(entry.first), entry.second}, no_origin, true);
}

std::optional<Value> dict_method(const std::shared_ptr<Dict>& dict, const std::string& name) {
  const auto over_entries = [&](auto of_entry) {
    return make_function(name, [dict, of_entry, name](Budget& budget, const Arguments& arguments) {
      arguments.check(0, "", name);
      budget.step(static_cast<std::int64_t>(dict->entries.size()));
      dict->read.assign(dict->entries.size(), true);
      std::vector<Value> items;
      for (const auto& entry : dict->entries) items.push_back(of_entry(entry));
      return Value::list(std::move(items), dict->origin);
    });
  };
  if (name == "items") return over_entries(pair_of);
  if (name == "keys") return over_entries([](const auto& entry) { return Value::text(entry.first); });
  if (name == "values") return over_entries([](const auto& entry) { return entry.second; });
  if (name != "get") return std::nullopt;
  return make_function(name, [dict](Budget&, const Arguments& arguments) -> Value {
    arguments.check(2, "", "get");
    const Value* const found = dict->find(text_in(arguments.need(0, "key", "get"), "get").bytes);
    if (found != nullptr) return *found;
    const Value* const otherwise = arguments.find(1, "default");
    return otherwise != nullptr ? *otherwise : Value(None{});
  });
}

}  // namespace

Text with_case(const Text& text, bool to_upper) {
  return by_character(text, [&](char32_t c, std::size_t) { return to_upper ? upper(c) : lower(c); });
}

Text capitalized(const Text& text) {
  return by_character(text, [](char32_t c, std::size_t at) { return at == 0 ? upper(c) : lower(c); });
}

std::optional<Value> method_of(const Value& of, const std::string& name) {
  if (const auto* dict = std::get_if<std::shared_ptr<Dict>>(&of.v)) return dict_method(*dict, name);
  if (of.as_text() == nullptr) return std::nullopt;
  const auto found = text_methods().find(name);
  if (found == text_methods().end()) return std::nullopt;
  return make_function(name, [of, method = found->second](Budget& budget, const Arguments& arguments) {
    budget.text(of.as_text()->bytes.size());
    return method(budget, *of.as_text(), arguments);
  });
}

}  // namespace consist::jinja
