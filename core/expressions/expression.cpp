// The graph of an expression: building it, and the steps of a loop.
#include "consist/expression.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "consist/error.h"
#include "core/base/index.h"

namespace consist {

std::string_view name_of(Function function) noexcept {
  constexpr std::array<std::string_view, 21> names{"input",   "constant", "channel", "add",  "subtract", "multiply", "divide",
                                                   "negate",  "exp",      "log",     "sqrt", "rsqrt",    "tanh",     "erf",
                                                   "sigmoid", "abs",      "sign",    "max",  "min",      "greater",  "select"};
  return names[static_cast<std::size_t>(function)];
}

int arguments_of(Function function) noexcept {
  switch (function) {
    case Function::input:
    case Function::constant:
    case Function::channel:
      return 0;
    case Function::add:
    case Function::subtract:
    case Function::multiply:
    case Function::divide:
    case Function::max:
    case Function::min:
    case Function::greater:
      return 2;
    case Function::select:
      return 3;
    default:
      return 1;
  }
}

template <typename T>
T evaluate(Function function, T x, T y, T z) {
  switch (function) {
    case Function::input:
    case Function::constant:
    case Function::channel:
      return x;
    case Function::add:
      return x + y;
    case Function::subtract:
      return x - y;
    case Function::multiply:
      return x * y;
    case Function::divide:
      return x / y;
    case Function::negate:
      return -x;
    case Function::exp:
      return std::exp(x);
    case Function::log:
      return std::log(x);
    case Function::sqrt:
      return std::sqrt(x);
    case Function::rsqrt:
      return 1 / std::sqrt(x);
    case Function::tanh:
      return std::tanh(x);
    case Function::erf:
      return std::erf(x);
    case Function::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Function::abs:
      return std::abs(x);
    case Function::sign:
      return static_cast<T>((x > 0) - (x < 0));
    case Function::max:
      return x > y ? x : y;
    case Function::min:
      return x < y ? x : y;
    case Function::greater:
      return x > y ? T{1} : T{0};
    case Function::select:
      return x > 0 ? y : z;
  }
  return x;
}
template float evaluate<float>(Function function, float x, float y, float z);
template double evaluate<double>(Function function, double x, double y, double z);

int Expressions::add(const ExpressionNode& node) {
  const auto same = std::find(nodes_.begin(), nodes_.end(), node);
  if (same != nodes_.end()) return static_cast<int>(same - nodes_.begin());
  nodes_.push_back(node);
  return static_cast<int>(nodes_.size()) - 1;
}

bool Expressions::is(int node, double value) const {
  return nodes_[index(node)].function == Function::constant && nodes_[index(node)].value == value;
}

int Expressions::constant(double value) {
  if (!std::isfinite(value)) throw ProgramError("an expression has a constant that is not finite");
  return add({.function = Function::constant, .value = value == 0 ? 0.0 : value});  // no -0
}

int Expressions::input(int index, Reads reads, int element) {
  if (index < 0 || index >= max_inputs) throw ProgramError("an expression has at most " + std::to_string(max_inputs) + " inputs");
  return add({.function = Function::input, .input = index, .reads = reads, .element = element});
}

int Expressions::apply(Function function, std::array<int, 3> x) {
  const int count = arguments_of(function);
  const auto is_constant = [&](int k) { return nodes_[index(x[index(k)])].function == Function::constant; };
  bool constants = count > 0;
  for (int k = 0; k < count; ++k) constants = constants && is_constant(k);
  if (constants) {
    std::array<double, 3> values{};
    for (int k = 0; k < count; ++k) values[index(k)] = nodes_[index(x[index(k)])].value;
    const double value = evaluate<double>(function, values[0], values[1], values[2]);
    if (!std::isfinite(value)) throw ProgramError("'" + std::string(name_of(function)) + "' of constants is not finite");
    return constant(value);
  }
  switch (function) {
    case Function::add:
      if (is(x[0], 0)) return x[1];
      if (is(x[1], 0)) return x[0];
      break;
    case Function::subtract:
      if (is(x[1], 0)) return x[0];
      if (is(x[0], 0)) return apply(Function::negate, {x[1], -1, -1});
      break;
    case Function::multiply:
      if (is(x[0], 0) || is(x[1], 0)) return constant(0);
      if (is(x[0], 1)) return x[1];
      if (is(x[1], 1)) return x[0];
      if (is(x[0], -1)) return apply(Function::negate, {x[1], -1, -1});
      if (is(x[1], -1)) return apply(Function::negate, {x[0], -1, -1});
      break;
    case Function::divide:
      if (is(x[1], 1)) return x[0];
      if (is(x[0], 0)) return x[0];
      break;
    case Function::negate:
      if (nodes_[index(x[0])].function == Function::negate) return nodes_[index(x[0])].arguments[0];
      break;
    case Function::select:
      if (x[1] == x[2]) return x[1];
      if (is_constant(0)) return nodes_[index(x[0])].value > 0 ? x[1] : x[2];
      break;
    default:
      break;
  }
  return add({.function = function, .arguments = x});
}

std::vector<bool> Expressions::live() const {
  std::vector<bool> live(nodes_.size(), false);
  for (const int result : results_) live[index(result)] = true;
  for (std::size_t n = nodes_.size(); n-- > 0;) {
    if (!live[n]) continue;
    for (int k = 0; k < arguments_of(nodes_[n].function); ++k) live[index(nodes_[n].arguments[index(k)])] = true;
  }
  return live;
}

int Expressions::inputs() const {
  const std::vector<bool> used = live();
  int inputs = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (used[n] && nodes_[n].function == Function::input) inputs = std::max(inputs, nodes_[n].input + 1);
  }
  return inputs;
}

std::vector<Reads> Expressions::reads_of(int input) const {
  const std::vector<bool> used = live();
  std::vector<Reads> reads;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const ExpressionNode& node = nodes_[n];
    if (!used[n] || node.function != Function::input || node.input != input) continue;
    if (std::find(reads.begin(), reads.end(), node.reads) == reads.end()) reads.push_back(node.reads);
  }
  return reads;
}

int Expressions::first_read(Reads how) const {
  for (int k = 0; k < inputs(); ++k) {
    if (reads_of(k) == std::vector{how}) return k;
  }
  return -1;
}

int Expressions::elements_of(int input) const {
  int elements = 0;
  for (const ExpressionNode& node : nodes_) {
    if (node.function == Function::input && node.input == input && node.reads == Reads::element)
      elements = std::max(elements, node.element + 1);
  }
  return elements;
}

bool Expressions::reads_channel() const {
  const std::vector<bool> used = live();
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (used[n] && nodes_[n].function == Function::channel) return true;
  }
  return false;
}

bool Expressions::proportional_to(int input) const {
  enum class Kind { independent, proportional, other };
  std::vector<Kind> kinds;
  for (const ExpressionNode& node : nodes_) {
    std::array<Kind, 3> of{Kind::independent, Kind::independent, Kind::independent};
    bool independent = node.function != Function::input || node.input != input;
    for (int k = 0; k < arguments_of(node.function); ++k) {
      of[index(k)] = kinds[index(node.arguments[index(k)])];
      independent = independent && of[index(k)] == Kind::independent;
    }
    bool proportional = false;
    switch (node.function) {
      case Function::input:
        proportional = node.input == input;
        break;
      case Function::add:
      case Function::subtract:
        proportional = of[0] == Kind::proportional && of[1] == Kind::proportional;
        break;
      case Function::multiply:
        proportional = (of[0] == Kind::proportional && of[1] == Kind::independent) ||
                       (of[0] == Kind::independent && of[1] == Kind::proportional);
        break;
      case Function::divide:
        proportional = of[0] == Kind::proportional && of[1] == Kind::independent;
        break;
      case Function::negate:
        proportional = of[0] == Kind::proportional;
        break;
      case Function::select:
        proportional = of[0] == Kind::independent && of[1] == Kind::proportional && of[2] == Kind::proportional;
        break;
      default:
        break;
    }
    kinds.push_back(independent ? Kind::independent : proportional ? Kind::proportional : Kind::other);
  }
  return std::all_of(results_.begin(), results_.end(), [&](int result) { return kinds[index(result)] == Kind::proportional; });
}

std::optional<double> Expressions::multiple_of(int input) const {
  if (results_.size() != 1) return std::nullopt;
  const auto is_input = [&](int n) {
    const ExpressionNode& node = nodes_[index(n)];
    return node.function == Function::input && node.input == input && node.reads == Reads::same;
  };
  const ExpressionNode& node = nodes_[index(results_[0])];
  if (is_input(results_[0])) return 1;
  if (node.function == Function::negate && is_input(node.arguments[0])) return -1;
  if (node.function != Function::multiply) return std::nullopt;
  for (const int side : {0, 1}) {
    const ExpressionNode& factor = nodes_[index(node.arguments[index(side)])];
    if (factor.function == Function::constant && is_input(node.arguments[index(1 - side)])) return factor.value;
  }
  return std::nullopt;
}

std::vector<int> Expressions::append(const Expressions& other, const std::vector<int>& new_index) {
  const std::vector<bool> used = other.live();
  std::vector<int> places(other.nodes_.size(), -1);
  for (std::size_t n = 0; n < other.nodes_.size(); ++n) {
    if (!used[n]) continue;
    ExpressionNode node = other.nodes_[n];
    for (int k = 0; k < arguments_of(node.function); ++k) node.arguments[index(k)] = places[index(node.arguments[index(k)])];
    if (node.function == Function::input) {
      node.input = index(node.input) < new_index.size() ? new_index[index(node.input)] : -1;
      if (node.input < 0) throw ProgramError("an input that the expression reads has no place");
    }
    places[n] = add(node);
  }
  std::vector<int> results;
  for (const int result : other.results_) results.push_back(places[index(result)]);
  return results;
}

Expressions Expressions::renumbered(const std::vector<int>& new_index) const {
  Expressions made;
  made.set_results(made.append(*this, new_index));
  return made;
}

namespace {

/// Gives slots to the nodes that results depend on, and takes them back after the last use.
class SlotAllocation {
 public:
  SlotAllocation(const std::vector<ExpressionNode>& nodes, const std::vector<int>& results, const std::vector<bool>& live)
      : nodes_(nodes), last_use_(nodes.size(), -1), slot_(nodes.size(), -1) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      for (int k = 0; live[n] && k < arguments_of(nodes[n].function); ++k)
        last_use_[index(nodes[n].arguments[index(k)])] = static_cast<int>(n);
    }
    for (const int result : results) last_use_[index(result)] = std::numeric_limits<int>::max();
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      if (live[n]) step(n);
    }
    for (const int result : results) made_.results.push_back(slot_[index(result)]);
  }

  ExpressionSteps take() { return std::move(made_); }

 private:
  void step(std::size_t n) {
    ExpressionStep step{.node = nodes_[n], .to = 0};
    for (int k = 0; k < arguments_of(nodes_[n].function); ++k) {
      int& argument = step.node.arguments[index(k)];
      const std::size_t from = index(argument);
      argument = slot_[from];
      if (last_use_[from] == static_cast<int>(n)) {
        last_use_[from] = -1;  // an argument may stand twice
        free_.push_back(slot_[from]);
      }
    }
    if (free_.empty()) {
      step.to = made_.slots++;
    } else {
      step.to = free_.back();
      free_.pop_back();
    }
    slot_[n] = step.to;
    made_.steps.push_back(step);
  }

  const std::vector<ExpressionNode>& nodes_;
  std::vector<int> last_use_, slot_, free_;
  ExpressionSteps made_;
};

}  // namespace

int Expressions::step_count() const {
  const std::vector<bool> used = live();
  return static_cast<int>(std::count(used.begin(), used.end(), true));
}

ExpressionSteps Expressions::steps() const {
  const int count = step_count();
  if (count > max_steps) {
    throw ProgramError("an expression takes " + std::to_string(count) + " steps, at most " + std::to_string(max_steps) +
                       " are possible: divide it into two");
  }
  return SlotAllocation(nodes_, results_, live()).take();
}

}  // namespace consist
