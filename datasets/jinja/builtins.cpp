#include "datasets/jinja/builtins.h"

#include <algorithm>

#include "consist/error.h"
#include "consist/text.h"
#include "datasets/jinja/template.h"

namespace consist::jinja {

void Budget::step(std::int64_t count) {
  if ((steps_ -= count) < 0)
    throw DataError(
        "it does more than its length and the conversation's account for; is there a loop within a loop over all messages?");
}

void Budget::text(std::size_t bytes) {
  if (bytes > room_) throw DataError("it writes more than " + std::to_string(room_ >> 20) + " MiB");
  step(static_cast<std::int64_t>(bytes / 32));
}

const Value* Arguments::find(std::size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [given, value] : named) {
    if (given == name) return &value;
  }
  return nullptr;
}

const Value& Arguments::need(std::size_t place, std::string_view name, const std::string& of) const {
  const Value* const found = find(place, name);
  if (found == nullptr) throw DataError(of + " needs its argument " + std::string(name));
  return *found;
}

void Arguments::check(std::size_t most, std::string_view names, const std::string& of) const {
  if (positional.size() > most) throw DataError(of + " takes " + std::to_string(most) + " arguments at most");
  for (const auto& [name, value] : named) {
    if (("," + std::string(names) + ",").find("," + name + ",") == std::string::npos)
      throw DataError(of + " has no argument " + in_quotes(name, 40) + " here");
  }
}

Value make_function(std::string name, std::function<Value(Budget&, const Arguments&)> call) {
  return std::make_shared<const Function>(Function{std::move(name), std::move(call)});
}

void refuse(const std::string& of, const Value& value) {
  if (const Undefined* u = std::get_if<Undefined>(&value.v)) throw DataError(in_quotes(u->name, 60) + " is undefined");
  throw DataError(of + " is given " + value.kind());
}

const Text& text_in(const Value& value, const std::string& of) {
  const Text* const text = value.as_text();
  if (text == nullptr) refuse(of, value);
  return *text;
}

std::int64_t integer_in(const Value& value, const std::string& of) {
  if (const bool* b = value.as_bool()) return *b ? 1 : 0;
  const std::int64_t* const integer = value.as_integer();
  if (integer == nullptr) refuse(of, value);
  return *integer;
}

Value attribute_of(const Value& of, const std::string& name) {
  if (of.is_undefined()) refuse("." + name, of);
  const Dict* const dict = of.as_dict();
  if (dict == nullptr || !dict->is_namespace) {
    if (auto method = method_of(of, name)) return *method;
  }
  if (dict != nullptr) {
    if (const Value* entry = dict->find(name)) return *entry;
  }
  return Value::undefined(name);
}

Value item_of(const Value& of, const Value& key) {
  if (of.is_undefined()) refuse("[...]", of);
  if (const Text* name = key.as_text()) {
    if (const Dict* dict = of.as_dict()) {
      if (const Value* entry = dict->find(name->bytes)) return *entry;
    }
    if (auto method = method_of(of, name->bytes)) return *method;
    return Value::undefined(name->bytes);
  }
  if (key.as_integer() == nullptr && key.as_bool() == nullptr) return Value::undefined("[...]");
  std::int64_t index = integer_in(key, "[...]");
  const Text* const text = of.as_text();
  const List* const list = of.as_list();
  const std::int64_t size = text != nullptr   ? static_cast<std::int64_t>(length_of(text->bytes))
                            : list != nullptr ? static_cast<std::int64_t>(list->items.size())
                                              : 0;
  if (index < 0) index += size;
  if (index < 0 || index >= size) return Value::undefined("[" + std::to_string(index) + "]");
  if (list != nullptr) return list->items[static_cast<std::size_t>(index)];
  const std::size_t begin = byte_of(text->bytes, static_cast<std::size_t>(index));
  return Value::text(part_of(*text, begin, begin + byte_of(std::string_view(text->bytes).substr(begin), 1)));
}

Value path_of(const Value& of, const Value& path) {
  if (path.as_text() == nullptr) return item_of(of, path);
  Value found = of;
  const std::string& names = path.as_text()->bytes;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find('.', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const bool is_index = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    found = item_of(found, is_index ? Value(static_cast<std::int64_t>(std::stol(name))) : Value::text(name));
    begin = end + 1;
  }
  return found;
}

namespace {

/// Python's slice.indices(): where to begin and end, among `size`.
std::pair<std::int64_t, std::int64_t> bounds_of(const Value* begin, const Value* end, std::int64_t step, std::int64_t size) {
  const auto bound = [&](const Value* given, std::int64_t otherwise) {
    if (given == nullptr || given->is_none()) return otherwise;
    std::int64_t at = integer_in(*given, "a slice");
    if (at < 0) at = at < -size ? -1 : at + size;
    const std::int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
    return std::clamp(at, low, high);
  };
  return {bound(begin, step < 0 ? size - 1 : 0), bound(end, step < 0 ? -1 : size)};
}

}  // namespace

Value slice_of(Budget& budget, const Value& of, const Value* begin, const Value* end, const Value* step) {
  const std::int64_t by = step == nullptr || step->is_none() ? 1 : integer_in(*step, "a slice");
  if (by == 0) throw DataError("a slice's step is 0");
  if (const List* list = of.as_list()) {
    const auto [from, to] = bounds_of(begin, end, by, static_cast<std::int64_t>(list->items.size()));
    std::vector<Value> items;
    for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by) {
      budget.step();
      items.push_back(list->items[static_cast<std::size_t>(i)]);
      if (by > INT32_MAX || by < INT32_MIN) break;
    }
    return Value::list(std::move(items), list->origin, list->is_tuple);
  }
  const Text& text = text_in(of, "a slice");
  budget.text(text.bytes.size());
  const auto [from, to] = bounds_of(begin, end, by, static_cast<std::int64_t>(length_of(text.bytes)));
  if (by == 1) {
    const std::size_t first = byte_of(text.bytes, static_cast<std::size_t>(from));
    return Value::text(part_of(text, first, byte_of(text.bytes, static_cast<std::size_t>(std::max(from, to)))));
  }
  const std::vector<Value> characters = items_of(budget, of);
  Text made;
  for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    append(made, *characters[static_cast<std::size_t>(i)].as_text());
    if (by > INT32_MAX || by < INT32_MIN) break;
  }
  return Value::text(std::move(made));
}

std::vector<Value> items_of(Budget& budget, const Value& of) {
  std::vector<Value> items;
  if (of.is_undefined()) return items;
  if (const List* list = of.as_list()) {
    budget.step(static_cast<std::int64_t>(list->items.size()));
    return list->items;
  }
  if (const Dict* dict = of.as_dict()) {
    budget.step(static_cast<std::int64_t>(dict->entries.size()));
    dict->read.assign(dict->entries.size(), true);
    for (const auto& [key, value] : dict->entries) items.push_back(Value::text(key));
    return items;
  }
  const Text& text = text_in(of, "a loop");
  budget.step(static_cast<std::int64_t>(text.bytes.size()));
  for (std::size_t at = 0; at < text.bytes.size();) {
    const std::size_t size = byte_of(std::string_view(text.bytes).substr(at), 1);
    items.push_back(Value::text(part_of(text, at, at + size)));
    at += size;
  }
  return items;
}

bool contains(const Value& within, const Value& what) {
  if (within.is_undefined()) return false;
  if (const Text* text = within.as_text()) return text->bytes.find(text_in(what, "in").bytes) != std::string::npos;
  if (const Dict* dict = within.as_dict()) return what.as_text() != nullptr && dict->find(what.as_text()->bytes) != nullptr;
  if (const List* list = within.as_list())
    return std::any_of(list->items.begin(), list->items.end(), [&](const Value& item) { return equal(item, what); });
  refuse("in", within);
}

namespace {

Value make_dict(const Arguments& arguments, bool is_namespace, const std::string& of) {
  auto dict = std::make_shared<Dict>();
  dict->is_namespace = is_namespace;
  if (arguments.positional.size() > 1) throw DataError(of + " takes one argument at most by its place");
  if (!arguments.positional.empty()) {
    const Dict* const from = arguments.positional[0].as_dict();
    if (from == nullptr) refuse(of, arguments.positional[0]);
    dict->entries = from->entries;
  }
  for (const auto& [name, value] : arguments.named) dict->set(name, value);
  return dict;
}

Value range(Budget& budget, const Arguments& arguments) {
  constexpr std::int64_t most = 100000;  // jinja2's sandbox allows as many
  arguments.check(3, "", "range");
  const std::size_t count = arguments.positional.size();
  if (count == 0) throw DataError("range needs an argument");
  const auto at = [&](std::size_t place) { return integer_in(arguments.positional[place], "range"); };
  const std::int64_t begin = count > 1 ? at(0) : 0, end = count > 1 ? at(1) : at(0), step = count > 2 ? at(2) : 1;
  if (step == 0) throw DataError("range's step is 0");
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    budget.step();
    if (static_cast<std::int64_t>(items.size()) >= most)
      throw DataError("range has more than " + std::to_string(most) + " numbers");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

}  // namespace

std::vector<std::pair<std::string, Value>> global_functions(const std::optional<std::tm>& now) {
  std::vector<std::pair<std::string, Value>> all;
  const auto add = [&](const char* name, std::function<Value(Budget&, const Arguments&)> call) {
    all.emplace_back(name, make_function(name, std::move(call)));
  };
  add("raise_exception", [](Budget& budget, const Arguments& arguments) -> Value {
    throw Refusal(printed(arguments.need(0, "message", "raise_exception"), budget.room()).bytes);
  });
  add("range", range);
  add("namespace", [](Budget&, const Arguments& arguments) { return make_dict(arguments, true, "namespace"); });
  add("dict", [](Budget&, const Arguments& arguments) { return make_dict(arguments, false, "dict"); });
  if (now) {
    add("strftime_now", [day = *now](Budget&, const Arguments& arguments) {
      char text[256];
      const std::string format = text_in(arguments.need(0, "format", "strftime_now"), "strftime_now").bytes;
      const std::size_t size = format.empty() ? 0 : std::strftime(text, sizeof text, format.c_str(), &day);
      if (size == 0 && !format.empty()) throw DataError("strftime_now's format is too long");
      return Value::text(std::string(text, size));
    });
  }
  return all;
}

}  // namespace consist::jinja
