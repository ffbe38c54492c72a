// Filters of lists: `|join`, `|selectattr`, ...
#include <algorithm>
#include <map>

#include "consist/error.h"
#include "datasets/jinja/builtins.h"

namespace consist::jinja {
namespace {

using Filter = Value (*)(Budget&, const Value&, const Arguments&);

Value with_attribute(const Value& item, const Value* attribute) {
  return attribute == nullptr || attribute->is_none() ? item : path_of(item, *attribute);
}

Value join(Budget& budget, const Value& of, const Arguments& a) {
  a.check(2, "d,attribute", "join");
  const Value *const between = a.find(0, "d"), *const attribute = a.find(1, "attribute");
  Text made;
  bool first = true;
  for (const Value& item : items_of(budget, of)) {
    if (!std::exchange(first, false) && between != nullptr) append(made, printed(*between, budget.room()));
    append(made, printed(with_attribute(item, attribute), budget.room()));
    budget.step();
    if (made.bytes.size() > budget.room()) budget.text(made.bytes.size());
  }
  budget.text(made.bytes.size());
  return Value::text(std::move(made));
}

/// select and reject, and those of an attribute: which items hold.
template <bool of_attribute, bool rejects>
Value select(Budget& budget, const Value& of, const Arguments& a) {
  const std::string name = std::string(rejects ? "reject" : "select") + (of_attribute ? "attr" : "");
  const std::size_t test_at = of_attribute ? 1 : 0;
  if (of_attribute) a.need(0, "attribute", name);
  std::vector<Value> chosen;
  for (const Value& item : items_of(budget, of)) {
    const Value value = of_attribute ? path_of(item, a.positional.at(0)) : item;
    bool holds = false;
    if (a.positional.size() <= test_at) {
      holds = value.is_true();
    } else {
      Arguments of_test;
      of_test.positional.assign(a.positional.begin() + static_cast<std::ptrdiff_t>(test_at) + 1, a.positional.end());
      holds = apply_test(budget, text_in(a.positional[test_at], name).bytes, value, of_test);
    }
    budget.step();
    if (holds != rejects) chosen.push_back(item);
  }
  return Value::list(std::move(chosen));
}

Value map(Budget& budget, const Value& of, const Arguments& a) {
  std::vector<Value> made;
  const auto named = [&](std::string_view name) { return a.find(SIZE_MAX, name); };
  const Value *const attribute = named("attribute"), *const otherwise = named("default");
  for (const Value& item : items_of(budget, of)) {
    if (attribute != nullptr) {
      Value value = path_of(item, *attribute);
      made.push_back(value.is_undefined() && otherwise != nullptr ? *otherwise : std::move(value));
    } else {
      Arguments of_filter = a;
      if (of_filter.positional.empty()) throw DataError("map needs a filter, or attribute=");
      const std::string filter = text_in(of_filter.positional[0], "map").bytes;
      of_filter.positional.erase(of_filter.positional.begin());
      made.push_back(apply_filter(budget, filter, item, of_filter));
    }
  }
  return Value::list(std::move(made));
}

Value sorted(Budget& budget, const Value& of, const Arguments& a) {
  a.check(3, "reverse,case_sensitive,attribute", "sort");
  const Value *const reverse = a.find(0, "reverse"), *const exact = a.find(1, "case_sensitive"),
                     *const attribute = a.find(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items_of(budget, of)) {
    Value key = with_attribute(item, attribute);
    if (key.as_text() != nullptr && (exact == nullptr || !exact->is_true())) key = Value::text(with_case(*key.as_text(), false));
    keyed.emplace_back(std::move(key), item);
  }
  budget.step(static_cast<std::int64_t>(keyed.size()) * 20);
  const bool backwards = reverse != nullptr && reverse->is_true();
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return backwards ? compare(y.first, x.first) < 0 : compare(x.first, y.first) < 0;
  });
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return Value::list(std::move(items));
}

Value unique(Budget& budget, const Value& of, const Arguments& a) {
  a.check(2, "case_sensitive,attribute", "unique");
  const Value *const exact = a.find(0, "case_sensitive"), *const attribute = a.find(1, "attribute");
  std::vector<Value> keys, items;
  for (const Value& item : items_of(budget, of)) {
    Value key = with_attribute(item, attribute);
    if (key.as_text() != nullptr && (exact == nullptr || !exact->is_true())) key = Value::text(with_case(*key.as_text(), false));
    budget.step(static_cast<std::int64_t>(keys.size()));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return equal(known, key); })) continue;
    keys.push_back(std::move(key));
    items.push_back(item);
  }
  return Value::list(std::move(items));
}

template <bool last>
Value first_or_last(Budget& budget, const Value& of, const Arguments&) {
  const std::vector<Value> items = items_of(budget, of);
  if (items.empty()) return Value::undefined(last ? "the last of an empty list" : "the first of an empty list");
  return last ? items.back() : items.front();
}

template <bool largest>
Value extreme(Budget& budget, const Value& of, const Arguments& a) {
  const Value* const attribute = a.find(1, "attribute");
  const std::vector<Value> items = items_of(budget, of);
  if (items.empty()) return Value::undefined("the extreme of an empty list");
  const auto less = [&](const Value& x, const Value& y) {
    return compare(with_attribute(x, attribute), with_attribute(y, attribute)) < 0;
  };
  return *(largest ? std::max_element(items.begin(), items.end(), less) : std::min_element(items.begin(), items.end(), less));
}

Value sum(Budget& budget, const Value& of, const Arguments& a) {
  a.check(2, "attribute,start", "sum");
  const Value *const attribute = a.find(0, "attribute"), *const start = a.find(1, "start");
  double real = start == nullptr ? 0 : number_of(*start);
  std::int64_t whole = start == nullptr || start->as_real() != nullptr ? 0 : integer_in(*start, "sum");
  bool is_whole = start == nullptr || start->as_real() == nullptr;
  for (const Value& item : items_of(budget, of)) {
    const Value value = with_attribute(item, attribute);
    real += number_of(value);
    is_whole = is_whole && value.as_real() == nullptr;
    if (is_whole && __builtin_add_overflow(whole, integer_in(value, "sum"), &whole))
      throw DataError("a number has more than 64 bits");
  }
  return is_whole ? Value(whole) : Value(real);
}

Value reversed(Budget& budget, const Value& of, const Arguments&) {
  std::vector<Value> items = items_of(budget, of);
  std::reverse(items.begin(), items.end());
  if (of.as_text() == nullptr) return Value::list(std::move(items));
  Text text;
  for (const Value& item : items) append(text, *item.as_text());
  return Value::text(std::move(text));
}

Value entries(Budget& budget, const Value& of, const Arguments&) {
  if (of.is_undefined()) return Value::list({});
  if (of.as_dict() == nullptr) refuse("items", of);
  return method_of(of, "items")->as_function()->call(budget, {});
}

Value dictsort(Budget& budget, const Value& of, const Arguments& a) {
  a.check(3, "case_sensitive,by,reverse", "dictsort");
  const Value *const exact = a.find(0, "case_sensitive"), *const by = a.find(1, "by"), *const reverse = a.find(2, "reverse");
  Arguments of_sort;
  of_sort.positional = {reverse != nullptr ? *reverse : Value(false), exact != nullptr ? *exact : Value(false),
                        Value(static_cast<std::int64_t>(by != nullptr && text_in(*by, "dictsort").bytes == "value" ? 1 : 0))};
  return sorted(budget, entries(budget, of, {}), of_sort);
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> all{
      {"join", join},
      {"select", select<false, false>},
      {"reject", select<false, true>},
      {"selectattr", select<true, false>},
      {"rejectattr", select<true, true>},
      {"map", map},
      {"sort", sorted},
      {"unique", unique},
      {"first", first_or_last<false>},
      {"last", first_or_last<true>},
      {"min", extreme<false>},
      {"max", extreme<true>},
      {"sum", sum},
      {"reverse", reversed},
      {"items", entries},
      {"dictsort", dictsort},
      {"list", [](Budget& b, const Value& v, const Arguments&) { return Value::list(items_of(b, v)); }},
  };
  return all;
}

}  // namespace

bool is_list_filter(std::string_view name) {
  return filters().contains(name);
}

Value apply_list_filter(Budget& budget, const std::string& name, const Value& of, const Arguments& arguments) {
  return filters().at(name)(budget, of, arguments);
}

}  // namespace consist::jinja
