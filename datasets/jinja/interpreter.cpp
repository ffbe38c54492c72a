// Statements.
#include <algorithm>

#include "datasets/jinja/evaluator.h"
#include "datasets/jinja/lexer.h"
#include "datasets/jinja/template.h"

namespace consist::jinja {
namespace {

using Kind = Statement::Kind;
enum class Flow { on, leave, next };

/// Where output goes.
struct Output {
  Text text;
  std::vector<std::pair<std::size_t, std::size_t>> generated;
  bool is_whole = false;  ///< the rendering itself, not a text that is made on the way
};

class Interpreter {
 public:
  explicit Interpreter(Budget& budget) : budget_(budget), evaluator_(budget) {}

  Flow run(const Body& body, const ScopePtr& scope, Output& out) {
    const Evaluator::Deeper deeper(evaluator_);
    for (const Statement& statement : body) {
      budget_.step();
      Flow flow = Flow::on;
      try {
        flow = one(statement, scope, out);
      } catch (const Refusal&) {
        throw;
      } catch (const DataError& error) {
        const std::string what = error.what();
        if (what.starts_with("line ")) throw;
        fail_at(statement.line, what);
      }
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }

 private:
  Value evaluate(const Node& node, const ScopePtr& scope) { return evaluator_.evaluate(node, *scope); }
  void write(Output& out, const Text& text) {
    budget_.text(out.text.bytes.size() > budget_.room() - std::min(budget_.room(), text.bytes.size()) ? budget_.room() + 1
                                                                                                      : text.bytes.size());
    append(out.text, text);
  }

  Flow one(const Statement& s, const ScopePtr& scope, Output& out) {
    switch (s.kind) {
      case Kind::data:
        write(out, {s.text, {}});
        return Flow::on;
      case Kind::print:
        write(out, printed(evaluate(*s.expression, scope), budget_.room()));
        return Flow::on;
      case Kind::branch:
        return branch(s, scope, out);
      case Kind::loop:
        return loop(s, scope, out);
      case Kind::set:
        set(s, evaluate(*s.expression, scope), *scope);
        return Flow::on;
      case Kind::set_block:
      case Kind::filter:
        captured(s, scope, out);
        return Flow::on;
      case Kind::macro:
        scope->set(s.text, macro(s, scope));
        return Flow::on;
      case Kind::generation:
        return generation(s, scope, out);
      case Kind::with:
        return with(s, scope, out);
      case Kind::leave:
        return Flow::leave;
      case Kind::next:
        return Flow::next;
    }
    return Flow::on;
  }

  Flow branch(const Statement& s, const ScopePtr& scope, Output& out) {
    for (std::size_t i = 0; i < s.conditions.size(); ++i) {
      if (s.conditions[i] == nullptr || evaluate(*s.conditions[i], scope).is_true()) return run(s.bodies[i], scope, out);
    }
    return Flow::on;
  }

  void assign(const std::vector<std::string>& targets, Value value, Scope& scope) {
    if (targets.size() == 1) return scope.set(targets[0], std::move(value));
    const std::vector<Value> items = items_of(budget_, value);
    if (items.size() != targets.size())
      throw DataError(std::to_string(targets.size()) + " names are set to " + std::to_string(items.size()) + " values");
    for (std::size_t i = 0; i < items.size(); ++i) scope.set(targets[i], items[i]);
  }
  void set(const Statement& s, Value value, Scope& scope) {
    if (s.attribute.empty()) return assign(s.targets, std::move(value), scope);
    const Value holder = scope.find(s.targets[0]);
    Dict* const dict = holder.as_dict();
    if (dict == nullptr || !dict->is_namespace)
      throw DataError("attributes of namespaces alone can be set, and '" + s.targets[0] + "' is none");
    dict->set(s.attribute, std::move(value));
  }

  void captured(const Statement& s, const ScopePtr& scope, Output& out) {
    Output inner;
    run(s.bodies[0], Scope::within(scope), inner);
    Value made = Value::text(std::move(inner.text));
    if (s.expression) made = evaluator_.filtered(*s.expression, std::move(made), *scope);
    if (s.kind == Kind::filter) return write(out, printed(made, budget_.room()));
    scope->set(s.targets[0], std::move(made));
  }

  Flow generation(const Statement& s, const ScopePtr& scope, Output& out) {
    if (!out.is_whole) throw DataError("{% generation %} within a macro or a block that is set is not supported");
    const std::size_t begin = out.text.bytes.size();
    const Flow flow = run(s.bodies[0], scope, out);
    out.generated.emplace_back(begin, out.text.bytes.size());
    return flow;
  }

  Flow with(const Statement& s, const ScopePtr& scope, Output& out) {
    const ScopePtr inner = Scope::within(scope);
    for (std::size_t i = 0; i < s.targets.size(); ++i) inner->set(s.targets[i], evaluate(*s.conditions[i], scope));
    return run(s.bodies[0], inner, out);
  }

  Value macro(const Statement& s, const ScopePtr& scope) {
    // The scope holds the macro, which must not hold the scope in turn.
    return make_function(s.text, [this, &s, weak = std::weak_ptr<Scope>(scope)](Budget&, const Arguments& arguments) {
      const ScopePtr outer = weak.lock();
      if (!outer) throw DataError("the macro " + s.text + " is called where its variables are gone");
      std::string names;
      for (const std::string& name : s.targets) names += (names.empty() ? "" : ",") + name;
      arguments.check(s.targets.size(), names, "the macro " + s.text);
      const ScopePtr inner = Scope::within(outer);
      for (std::size_t i = 0; i < s.targets.size(); ++i) {
        const Value* const given = arguments.find(i, s.targets[i]);
        inner->set(s.targets[i], given != nullptr             ? *given
                                 : s.conditions[i] != nullptr ? evaluate(*s.conditions[i], inner)
                                                              : Value::undefined(s.targets[i]));
      }
      Output out;
      run(s.bodies[0], inner, out);
      return Value::text(std::move(out.text));
    });
  }

  Flow loop(const Statement& s, const ScopePtr& scope, Output& out) {
    std::vector<Value> items = items_of(budget_, evaluate(*s.expression, scope));
    if (s.condition) {
      std::erase_if(items, [&](const Value& item) {
        const ScopePtr inner = Scope::within(scope);
        assign(s.targets, item, *inner);
        return !evaluate(*s.condition, inner).is_true();
      });
    }
    if (items.empty()) return s.bodies.size() > 1 ? run(s.bodies[1], scope, out) : Flow::on;
    for (std::size_t i = 0; i < items.size(); ++i) {
      budget_.step(4);
      const ScopePtr inner = Scope::within(scope);
      inner->set("loop", loop_value(items, i));
      assign(s.targets, items[i], *inner);
      if (run(s.bodies[0], inner, out) == Flow::leave) break;
    }
    return Flow::on;
  }

  static Value loop_value(const std::vector<Value>& items, std::size_t i) {
    const auto number = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
    auto loop = std::make_shared<Dict>();
    loop->is_namespace = true;
    loop->entries = {{"index0", number(i)},
                     {"index", number(i + 1)},
                     {"first", i == 0},
                     {"last", i + 1 == items.size()},
                     {"length", number(items.size())},
                     {"revindex", number(items.size() - i)},
                     {"revindex0", number(items.size() - i - 1)},
                     {"previtem", i > 0 ? items[i - 1] : Value::undefined("previtem")},
                     {"nextitem", i + 1 < items.size() ? items[i + 1] : Value::undefined("nextitem")},
                     {"depth", number(1)},  // of recursive loops, which are not supported
                     {"depth0", number(0)}};
    loop->entries.emplace_back("cycle", make_function("cycle", [i](Budget&, const Arguments& arguments) -> Value {
                                 if (arguments.positional.empty()) throw DataError("loop.cycle needs values");
                                 return arguments.positional[i % arguments.positional.size()];
                               }));
    return loop;
  }

  Budget& budget_;
  Evaluator evaluator_;
};

bool has_generation(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const Statement& s) {
    return s.kind == Kind::generation || std::any_of(s.bodies.begin(), s.bodies.end(), has_generation);
  });
}

}  // namespace

Template::Template(std::string_view program) {
  if (program.size() > most_program_bytes)
    throw DataError("it has " + std::to_string(program.size()) + " bytes; more than " + std::to_string(most_program_bytes >> 20) +
                    " MiB are not read");
  body_ = std::make_shared<const Body>(parse(program));
  marks_generation_ = has_generation(*body_);
}

Rendering Template::render(std::vector<std::pair<std::string, Value>> variables, const RenderLimits& limits,
                           const std::optional<std::tm>& now) const {
  Budget budget(limits.steps, limits.bytes);
  Interpreter interpreter(budget);
  const auto scope = std::make_shared<Scope>();
  for (auto& [name, value] : global_functions(now)) scope->set(name, std::move(value));
  for (auto& [name, value] : variables) scope->set(name, std::move(value));
  Output out{.text = {}, .generated = {}, .is_whole = true};
  interpreter.run(*body_, Scope::within(scope), out);
  return {std::move(out.text), std::move(out.generated)};
}

}  // namespace consist::jinja
