// Builtins of programs: filters, tests, methods of values, functions. The names are jinja2's and Python's.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/jinja/value.h"

namespace consist::jinja {

/// Steps and bytes that a program may still use. Each function throws DataError if it has used too much.
class Budget {
 public:
  Budget(std::int64_t steps, std::size_t bytes) : steps_(steps), room_(bytes) {}
  void step(std::int64_t count = 1);
  /// A text of so many bytes is made.
  void text(std::size_t bytes);
  std::size_t room() const { return room_; }  ///< bytes of the longest text

 private:
  std::int64_t steps_;
  std::size_t room_;
};

/// The arguments of a call, taken one after the other.
class Arguments {
 public:
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// Null where it is not given.
  const Value* find(std::size_t place, std::string_view name) const;
  const Value& need(std::size_t place, std::string_view name, const std::string& of) const;
  /// Throws DataError if there are more by place than `most`, or one whose name is not in `names` (with commas between).
  void check(std::size_t most, std::string_view names, const std::string& of) const;
};

struct Function {
  std::string name;
  std::function<Value(Budget&, const Arguments&)> call;
};
Value make_function(std::string name, std::function<Value(Budget&, const Arguments&)> call);

bool is_filter(std::string_view name);
Value apply_filter(Budget& budget, const std::string& name, const Value& of, const Arguments& arguments);

/// The filters of lists among them.
bool is_list_filter(std::string_view name);
Value apply_list_filter(Budget& budget, const std::string& name, const Value& of, const Arguments& arguments);

bool is_test(std::string_view name);
bool apply_test(Budget& budget, const std::string& name, const Value& of, const Arguments& arguments);

/// A method of a text, a list or an object; nothing if it has none of this name.
std::optional<Value> method_of(const Value& of, const std::string& name);

/// of.name: a method, else an entry; undefined if there is neither. Throws DataError for what is undefined itself.
Value attribute_of(const Value& of, const std::string& name);
/// of[key]: an entry, else a method.
Value item_of(const Value& of, const Value& key);
/// A path of entries such as "function.name", as filters' attribute= has it.
Value path_of(const Value& of, const Value& path);
Value slice_of(Budget& budget, const Value& of, const Value* begin, const Value* end, const Value* step);
/// Returns the items of a loop: those of a list, the keys of an object, the characters of a text; none of an undefined value.
std::vector<Value> items_of(Budget& budget, const Value& of);
bool contains(const Value& within, const Value& what);

/// raise_exception, range, namespace, dict, and strftime_now where there is a day.
std::vector<std::pair<std::string, Value>> global_functions(const std::optional<std::tm>& now);

/// Throws DataError: the value is undefined, or of another kind than is needed.
const Text& text_in(const Value& value, const std::string& of);
std::int64_t integer_in(const Value& value, const std::string& of);
[[noreturn]] void refuse(const std::string& of, const Value& value);

/// With Unicode's simple case mapping.
Text with_case(const Text& text, bool upper);
Text capitalized(const Text& text);

}  // namespace consist::jinja
