// Tests: `is defined`, `is string`, ...
#include <map>

#include "consist/error.h"
#include "datasets/jinja/builtins.h"

namespace consist::jinja {
namespace {

using Test = bool (*)(const Value&, const Arguments&);

const Value& other(const Arguments& arguments) {
  return arguments.need(0, "other", "a test");
}
template <typename Holds>
bool ordered(const Value& value, const Arguments& arguments, Holds holds) {
  if (value.is_undefined()) refuse("a test", value);
  return holds(compare(value, other(arguments)));
}
std::int64_t remainder(const Value& value, std::int64_t by) {
  if (by == 0) throw DataError("it divides by 0");
  return by == -1 ? 0 : integer_in(value, "a test") % by;
}

const std::map<std::string_view, Test>& tests() {
  static const Test same = [](const Value& v, const Arguments& a) { return equal(v, other(a)); };
  static const Test unlike = [](const Value& v, const Arguments& a) { return !equal(v, other(a)); };
  static const Test less = [](const Value& v, const Arguments& a) { return ordered(v, a, [](int o) { return o < 0; }); };
  static const Test most = [](const Value& v, const Arguments& a) { return ordered(v, a, [](int o) { return o <= 0; }); };
  static const Test more = [](const Value& v, const Arguments& a) { return ordered(v, a, [](int o) { return o > 0; }); };
  static const Test least = [](const Value& v, const Arguments& a) { return ordered(v, a, [](int o) { return o >= 0; }); };
  static const std::map<std::string_view, Test> all{
      {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
      {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
      {"string", [](const Value& v, const Arguments&) { return v.as_text() != nullptr; }},
      {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
      {"integer", [](const Value& v, const Arguments&) { return v.as_integer() != nullptr; }},
      {"float", [](const Value& v, const Arguments&) { return v.as_real() != nullptr; }},
      {"boolean", [](const Value& v, const Arguments&) { return v.as_bool() != nullptr; }},
      {"true", [](const Value& v, const Arguments&) { return v.as_bool() != nullptr && *v.as_bool(); }},
      {"false", [](const Value& v, const Arguments&) { return v.as_bool() != nullptr && !*v.as_bool(); }},
      {"mapping", [](const Value& v, const Arguments&) { return v.as_dict() != nullptr && !v.as_dict()->is_namespace; }},
      {"iterable",
       [](const Value& v, const Arguments&) {
         return v.is_undefined() || v.as_text() != nullptr || v.as_list() != nullptr ||
                (v.as_dict() != nullptr && !v.as_dict()->is_namespace);
       }},
      {"sequence",
       [](const Value& v, const Arguments&) {
         return v.is_undefined() || v.as_text() != nullptr || v.as_list() != nullptr ||
                (v.as_dict() != nullptr && !v.as_dict()->is_namespace);
       }},
      {"callable", [](const Value& v, const Arguments&) { return v.as_function() != nullptr; }},
      {"sameas", [](const Value& v, const Arguments& a) { return v.v.index() == other(a).v.index() && equal(v, other(a)); }},
      {"in", [](const Value& v, const Arguments& a) { return contains(other(a), v); }},
      {"odd", [](const Value& v, const Arguments&) { return remainder(v, 2) != 0; }},
      {"even", [](const Value& v, const Arguments&) { return remainder(v, 2) == 0; }},
      {"divisibleby", [](const Value& v, const Arguments& a) { return remainder(v, integer_in(other(a), "divisibleby")) == 0; }},
      {"upper",
       [](const Value& v, const Arguments&) {
         const Text& t = text_in(v, "a test");
         return with_case(t, true).bytes == t.bytes && with_case(t, false).bytes != t.bytes;
       }},
      {"lower",
       [](const Value& v, const Arguments&) {
         const Text& t = text_in(v, "a test");
         return with_case(t, false).bytes == t.bytes && with_case(t, true).bytes != t.bytes;
       }},
      {"eq", same},
      {"equalto", same},
      {"ne", unlike},
      {"lt", less},
      {"lessthan", less},
      {"le", most},
      {"gt", more},
      {"greaterthan", more},
      {"ge", least},
  };
  return all;
}

}  // namespace

bool is_test(std::string_view name) {
  return tests().contains(name);
}

bool apply_test(Budget& budget, const std::string& name, const Value& of, const Arguments& arguments) {
  if (const Text* text = of.as_text()) budget.step(static_cast<std::int64_t>(text->bytes.size() / 64));
  arguments.check(1, "", "the test " + name);
  const auto found = tests().find(name);
  if (found == tests().end()) throw DataError("there is no test '" + name + "' here");
  return found->second(of, arguments);
}

}  // namespace consist::jinja
