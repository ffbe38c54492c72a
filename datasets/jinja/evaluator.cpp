#include "datasets/jinja/evaluator.h"

#include <algorithm>
#include <cmath>

#include "consist/error.h"
#include "consist/text.h"

namespace consist::jinja {

using Kind = Node::Kind;

Value Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get()) {
    for (const auto& [known, value] : scope->variables_) {
      if (known == name) return value;
    }
  }
  return Value::undefined(name);
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [known, held] : variables_) {
    if (known != name) continue;
    held = std::move(value);
    return;
  }
  variables_.emplace_back(name, std::move(value));
}

Evaluator::Deeper::Deeper(Evaluator& evaluator) : evaluator_(evaluator) {
  constexpr int most = 1000;  // as Python's
  if (++evaluator_.depth_ > most) {
    --evaluator_.depth_;
    throw DataError("macros call each other, or blocks lie in each other, more than " + std::to_string(most) + " deep");
  }
}

Value Evaluator::evaluate(const Node& node, const Scope& scope) {
  const Deeper deeper(*this);
  budget_.step();
  const auto part = [&](std::size_t i) { return evaluate(*node.parts[i], scope); };
  switch (node.kind) {
    case Kind::constant:
      return node.value;
    case Kind::name:
      return scope.find(node.name);
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
      return collection(node, scope);
    case Kind::attribute:
      return attribute_of(part(0), node.name);
    case Kind::item:
      return item_of(part(0), part(1));
    case Kind::slice:
      return slice(node, scope);
    case Kind::call:
      return call(node, scope);
    case Kind::filter:
      return filtered(node, part(0), scope);
    case Kind::test: {
      const Value of = part(0);
      return apply_test(budget_, node.name, of, arguments_of(node, scope));
    }
    case Kind::negated:
      return !part(0).is_true();
    case Kind::minus:
      return arithmetic("-", std::int64_t{0}, part(0));
    case Kind::plus:
      return arithmetic("+", std::int64_t{0}, part(0));
    case Kind::binary:
      return binary(node, scope);
    case Kind::comparison:
      return comparison(node, scope);
    case Kind::both:
    case Kind::either: {
      Value first = part(0);
      return first.is_true() == (node.kind == Kind::both) ? part(1) : first;
    }
    case Kind::conditional:
      if (part(1).is_true()) return part(0);
      return node.parts[2] ? part(2) : Value::undefined("if without else");
  }
  return {};
}

Value Evaluator::filtered(const Node& filter, Value of, const Scope& scope) {
  if (filter.parts[0] != nullptr && filter.parts[0]->kind == Kind::filter) {
    // In a filter block, the filters before this one come first, down to the one that has nothing before it.
    const Node* inner = filter.parts[0].get();
    while (inner->parts[0] != nullptr && inner->parts[0]->kind == Kind::filter) inner = inner->parts[0].get();
    if (inner->parts[0] == nullptr) of = filtered(*filter.parts[0], std::move(of), scope);
  }
  return apply_filter(budget_, filter.name, of, arguments_of(filter, scope));
}

Arguments Evaluator::arguments_of(const Node& node, const Scope& scope) {
  Arguments arguments;
  for (std::size_t i = 1; i < node.parts.size(); ++i) arguments.positional.push_back(evaluate(*node.parts[i], scope));
  for (const auto& [name, value] : node.named) arguments.named.emplace_back(name, evaluate(*value, scope));
  return arguments;
}

Value Evaluator::collection(const Node& node, const Scope& scope) {
  if (node.kind != Kind::dict) {
    std::vector<Value> items;
    for (const NodePtr& part : node.parts) items.push_back(evaluate(*part, scope));
    return Value::list(std::move(items), no_origin, node.kind == Kind::tuple);
  }
  auto dict = std::make_shared<Dict>();
  for (std::size_t i = 0; i + 1 < node.parts.size(); i += 2) {
    const Value key = evaluate(*node.parts[i], scope);
    dict->set(text_in(key, "the key of an object").bytes, evaluate(*node.parts[i + 1], scope));
  }
  return dict;
}

Value Evaluator::call(const Node& node, const Scope& scope) {
  const Value callee = evaluate(*node.parts[0], scope);
  const Function* const function = callee.as_function();
  if (function == nullptr) refuse("a call", callee);
  return function->call(budget_, arguments_of(node, scope));
}

Value Evaluator::slice(const Node& node, const Scope& scope) {
  const Value of = evaluate(*node.parts[0], scope);
  Value bounds[3];
  const Value* given[3] = {nullptr, nullptr, nullptr};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!node.parts[i + 1]) continue;
    bounds[i] = evaluate(*node.parts[i + 1], scope);
    given[i] = &bounds[i];
  }
  return slice_of(budget_, of, given[0], given[1], given[2]);
}

Value Evaluator::comparison(const Node& node, const Scope& scope) {
  Value left = evaluate(*node.parts[0], scope);
  for (std::size_t i = 0; i < node.operations.size(); ++i) {
    const std::string& operation = node.operations[i];
    Value right = evaluate(*node.parts[i + 1], scope);
    if (const Text* text = right.as_text()) budget_.step(static_cast<std::int64_t>(text->bytes.size() / 64));
    if (const List* list = right.as_list()) budget_.step(static_cast<std::int64_t>(list->items.size()));
    bool holds = false;
    if (operation == "==" || operation == "!=") {
      holds = equal(left, right) == (operation == "==");
    } else if (operation == "in" || operation == "not in") {
      holds = contains(right, left) == (operation == "in");
    } else {
      if (left.is_undefined()) refuse(operation, left);
      if (right.is_undefined()) refuse(operation, right);
      const int order = compare(left, right);
      holds = operation == "<" ? order < 0 : (operation == ">" ? order > 0 : (operation == "<=" ? order <= 0 : order >= 0));
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::binary(const Node& node, const Scope& scope) {
  const Value a = evaluate(*node.parts[0], scope), b = evaluate(*node.parts[1], scope);
  if (node.name == "~") {
    Text text = printed(a, budget_.room());
    append(text, printed(b, budget_.room()));
    budget_.text(text.bytes.size());
    return Value::text(std::move(text));
  }
  if (a.is_undefined()) refuse(node.name, a);
  if (b.is_undefined()) refuse(node.name, b);
  if (node.name == "+") return sum(a, b);
  if (node.name == "*") return product(a, b);
  return arithmetic(node.name, a, b);
}

Value Evaluator::sum(const Value& a, const Value& b) {
  if (a.as_text() != nullptr && b.as_text() != nullptr) {
    budget_.text(a.as_text()->bytes.size() + b.as_text()->bytes.size());
    Text text = *a.as_text();
    append(text, *b.as_text());
    return Value::text(std::move(text));
  }
  if (a.as_list() != nullptr && b.as_list() != nullptr) {
    std::vector<Value> items = items_of(budget_, a);
    for (Value& item : items_of(budget_, b)) items.push_back(std::move(item));
    return Value::list(std::move(items), a.as_list()->origin, a.as_list()->is_tuple);
  }
  if (!a.is_number() || !b.is_number()) throw DataError(std::string("+ is given ") + a.kind() + " and " + b.kind());
  return arithmetic("+", a, b);
}

Value Evaluator::product(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return arithmetic("*", a, b);
  const Value& many = a.is_number() ? b : a;
  const std::int64_t times = std::max<std::int64_t>(integer_in(a.is_number() ? a : b, "*"), 0);
  std::vector<Value> items;
  Text text;
  const List* const list = many.as_list();
  for (std::int64_t i = 0; i < times; ++i) {
    budget_.step();
    if (list != nullptr) {
      budget_.step(static_cast<std::int64_t>(list->items.size()));
      items.insert(items.end(), list->items.begin(), list->items.end());
    } else {
      append(text, text_in(many, "*"));
      budget_.text(text.bytes.size() > budget_.room() ? text.bytes.size() : text_in(many, "*").bytes.size());
    }
  }
  return list != nullptr ? Value::list(std::move(items)) : Value::text(std::move(text));
}

Value Evaluator::arithmetic(const std::string& operation, const Value& a, const Value& b) {
  const auto is_whole = [](const Value& v) { return v.as_integer() != nullptr || v.as_bool() != nullptr; };
  const double x = number_of(a), y = number_of(b);
  const bool divides = operation == "/" || operation == "//" || operation == "%";
  if (divides && y == 0) throw DataError("it divides by 0");
  if (operation == "/") return x / y;
  if (!is_whole(a) || !is_whole(b) || (operation == "**" && y < 0)) {
    if (operation == "+") return x + y;
    if (operation == "-") return x - y;
    if (operation == "*") return x * y;
    if (operation == "**") return std::pow(x, y);
    return operation == "//" ? std::floor(x / y) : x - y * std::floor(x / y);
  }
  const std::int64_t i = integer_in(a, operation), j = integer_in(b, operation);
  std::int64_t result = 0;
  bool overflows = false;
  if (operation == "+") {
    overflows = __builtin_add_overflow(i, j, &result);
  } else if (operation == "-") {
    overflows = __builtin_sub_overflow(i, j, &result);
  } else if (operation == "*") {
    overflows = __builtin_mul_overflow(i, j, &result);
  } else if (operation == "**") {
    result = 1;
    if (j > 64 && i != 0 && i != 1 && i != -1) overflows = true;
    for (std::int64_t n = 0; n < (j > 64 ? 64 + j % 2 : j) && !overflows; ++n)
      overflows = __builtin_mul_overflow(result, i, &result);
  } else if (j == -1) {  // which the quotient of the smallest integer does not survive
    if (operation == "//") overflows = __builtin_sub_overflow(std::int64_t{0}, i, &result);
  } else {
    const std::int64_t quotient = i / j - ((i % j != 0 && (i < 0) != (j < 0)) ? 1 : 0);
    result = operation == "//" ? quotient : i - quotient * j;
  }
  if (overflows) throw DataError("a number has more than 64 bits");
  return result;
}

}  // namespace consist::jinja
