// The text of an expression: parser and printer.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <numbers>

#include "consist/error.h"
#include "consist/expression.h"
#include "core/base/index.h"

namespace consist {
namespace {

bool letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}
bool digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

/// By recursive descent, one function for each level of precedence.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Expressions parse() {
    std::vector<int> results;
    do {
      if (!definition()) results.push_back(sum());
    } while (take(';'));
    if (peek() != '\0') fail("an operator, ';' or the end");
    if (results.empty()) fail("a result");
    graph_.set_results(std::move(results));
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected) {
    peek();
    throw ProgramError("expression '" + std::string(text_) + "': expected " + expected + " at character " +
                       std::to_string(at_ + 1) +
                       (at_ < text_.size() ? ", found '" + std::string(text_.substr(at_, 1)) + "'" : ", which is its end"));
  }
  /// The next character behind blanks; 0 at the end.
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void need(char wanted) {
    if (!take(wanted)) fail("'" + std::string(1, wanted) + "'");
  }
  std::string word() {
    peek();
    const std::size_t first = at_;
    while (at_ < text_.size() && (letter(text_[at_]) || digit(text_[at_]) || text_[at_] == '_')) ++at_;
    return std::string(text_.substr(first, at_ - first));
  }

  bool definition() {
    const std::size_t before = at_;
    const std::string name = word();
    if (name.size() >= 2 && letter(name[0]) && digit(name[1]) && take('=')) {
      if (names_.contains(name)) {
        at_ = before;
        fail("a name that stands for nothing yet");
      }
      const int value = sum();
      names_.emplace(name, value);
      return true;
    }
    at_ = before;
    return false;
  }
  int sum() {
    int value = product();
    while (true) {
      if (take('+'))
        value = graph_.apply(Function::add, {value, product(), -1});
      else if (take('-'))
        value = graph_.apply(Function::subtract, {value, product(), -1});
      else
        return value;
    }
  }
  int product() {
    int value = factor();
    while (true) {
      if (take('*'))
        value = graph_.apply(Function::multiply, {value, factor(), -1});
      else if (take('/'))
        value = graph_.apply(Function::divide, {value, factor(), -1});
      else
        return value;
    }
  }
  int factor() {
    if (++depth_ > max_depth) fail("fewer levels of brackets and signs");
    const int value = take('-') ? graph_.apply(Function::negate, {factor(), -1, -1}) : primary();
    --depth_;
    return value;
  }
  int primary() {
    const char next = peek();
    if (take('(')) {
      const int value = sum();
      need(')');
      return value;
    }
    if (digit(next) || next == '.') return number();
    if (!letter(next)) fail("a value");
    const std::size_t before = at_;
    const std::string name = word();
    if (const auto named = names_.find(name); named != names_.end()) return named->second;
    if (name.size() == 1 && name[0] >= 'a' && name[0] < 'a' + Expressions::max_inputs) return input(name[0] - 'a');
    if (name == name_of(Function::channel)) return graph_.apply(Function::channel, {-1, -1, -1});
    if (peek() == '(') return call(name, before);
    at_ = before;
    fail("an input (a to " + std::string(1, static_cast<char>('a' + Expressions::max_inputs - 1)) +
         "), a name, a function, 'channel' or a number");
  }
  int number() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("a number");
    at_ = static_cast<std::size_t>(end - text_.data());
    return graph_.constant(value);
  }
  int input(int index) {
    if (!take('[')) return graph_.input(index);
    int made = -1;
    if (digit(peek())) {
      int element = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), element);
      if (error != std::errc{}) fail("an element's number");
      at_ = static_cast<std::size_t>(end - text_.data());
      made = graph_.input(index, Reads::element, element);
    } else if (take('c')) {
      made = graph_.input(index, Reads::channel);
    } else if (take('r')) {
      made = graph_.input(index, Reads::row);
    } else if (take('b')) {
      made = graph_.input(index, Reads::block);
    } else {
      fail("c, r, b or an element's number");
    }
    need(']');
    return made;
  }
  int call(const std::string& name, std::size_t before) {
    need('(');
    std::vector<int> arguments{sum()};
    while (take(',')) arguments.push_back(sum());
    need(')');
    const std::optional<int> made = arguments.size() == 1 ? known_by_name(name, arguments[0]) : std::nullopt;
    if (made) return *made;
    for (int f = static_cast<int>(Function::exp); f <= static_cast<int>(Function::select); ++f) {
      const auto function = static_cast<Function>(f);
      if (name_of(function) != name) continue;
      if (static_cast<int>(arguments.size()) != arguments_of(function)) {
        fail(std::to_string(arguments_of(function)) + " arguments of '" + name + "' before this place, not " +
             std::to_string(arguments.size()));
      }
      arguments.resize(3, -1);
      return graph_.apply(function, {arguments[0], arguments[1], arguments[2]});
    }
    at_ = before;
    fail("a function, which '" + name + "' of " + std::to_string(arguments.size()) + " is not (consist/expression.h lists them)");
  }
  /// Names that stand for longer expressions; nothing for others.
  std::optional<int> known_by_name(const std::string& name, int x) {
    const auto times = [&](int left, int right) { return graph_.apply(Function::multiply, {left, right, -1}); };
    const auto plus = [&](int left, int right) { return graph_.apply(Function::add, {left, right, -1}); };
    const auto number = [&](double value) { return graph_.constant(value); };
    const auto of = [&](Function function, int argument) { return graph_.apply(function, {argument, -1, -1}); };
    if (name == "square") return times(x, x);
    if (name == "relu") return graph_.apply(Function::max, {x, number(0), -1});
    if (name == "softplus") {
      // Of the two sides of 0 max takes the second one's derivative: together they make the half that it is.
      const int size = graph_.apply(Function::max, {x, of(Function::negate, x), -1});
      const int small = of(Function::exp, of(Function::negate, size));
      return plus(graph_.apply(Function::max, {x, number(0), -1}), of(Function::log, plus(number(1), small)));
    }
    if (name == "silu") return times(x, of(Function::sigmoid, x));
    if (name == "gelu") {
      const int erf = of(Function::erf, times(x, number(std::numbers::sqrt2 / 2)));
      return times(times(number(0.5), x), plus(number(1), erf));
    }
    if (name == "gelu_tanh") {  // Hendrycks and Gimpel, 2016
      const int cube = times(number(0.044715), times(x, times(x, x)));
      const int tanh = of(Function::tanh, times(number(std::numbers::sqrt2 * std::numbers::inv_sqrtpi), plus(x, cube)));
      return times(times(number(0.5), x), plus(number(1), tanh));
    }
    return std::nullopt;
  }

  static constexpr int max_depth = 100;

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::map<std::string, int> names_;
  Expressions graph_;
};

/// Gives a name to each value that is used more than once.
class ExpressionPrinter {
 public:
  ExpressionPrinter(const std::vector<ExpressionNode>& nodes, const std::vector<int>& results)
      : nodes_(nodes), uses_(nodes.size(), 0), name_(nodes.size()) {
    for (const int result : results) count(result);
    for (const int result : results) define(result);
    for (const int result : results) text_ += (text_.empty() ? "" : ";") + text_of(result, 0);
  }
  std::string take() { return std::move(text_); }

 private:
  enum Level { sums = 1, products = 2, signs = 3, atoms = 4 };

  void count(int n) {
    if (uses_[index(n)]++ > 0) return;
    for (int k = 0; k < arguments_of(nodes_[index(n)].function); ++k) count(nodes_[index(n)].arguments[index(k)]);
  }
  void define(int n) {
    const ExpressionNode& node = nodes_[index(n)];
    if (arguments_of(node.function) == 0 || !name_[index(n)].empty()) return;
    for (int k = 0; k < arguments_of(node.function); ++k) define(node.arguments[index(k)]);
    if (uses_[index(n)] < 2) return;
    const std::string value = text_of(n, 0);
    name_[index(n)] = "t" + std::to_string(names_++);
    text_ += (text_.empty() ? "" : ";") + name_[index(n)] + "=" + value;
  }
  std::string leaf(const ExpressionNode& node) const {
    const std::string name(1, static_cast<char>('a' + node.input));
    switch (node.reads) {
      case Reads::same:
        return name;
      case Reads::channel:
        return name + "[c]";
      case Reads::row:
        return name + "[r]";
      case Reads::block:
        return name + "[b]";
      case Reads::element:
        return name + "[" + std::to_string(node.element) + "]";
    }
    return name;
  }
  /// In brackets where the value binds less than `least`.
  std::string text_of(int n, int least) const {
    if (!name_[index(n)].empty()) return name_[index(n)];
    const ExpressionNode& node = nodes_[index(n)];
    const auto bracketed = [&](int level, const std::string& text) { return level < least ? "(" + text + ")" : text; };
    const auto binary = [&](int level, const char* sign) {
      return bracketed(level, text_of(node.arguments[0], level) + sign + text_of(node.arguments[1], level + 1));
    };
    switch (node.function) {
      case Function::input:
        return leaf(node);
      case Function::channel:
        return std::string(name_of(node.function));
      case Function::constant:
        return bracketed(node.value < 0 ? sums : atoms, number_text(node.value));
      case Function::add:
        return binary(sums, "+");
      case Function::subtract:
        return binary(sums, "-");
      case Function::multiply:
        return binary(products, "*");
      case Function::divide:
        return binary(products, "/");
      case Function::negate:
        return bracketed(signs, "-" + text_of(node.arguments[0], signs));
      default:
        break;
    }
    std::string text(name_of(node.function));
    for (int k = 0; k < arguments_of(node.function); ++k) text += (k == 0 ? "(" : ",") + text_of(node.arguments[index(k)], 0);
    return text + ")";
  }

  const std::vector<ExpressionNode>& nodes_;
  std::vector<int> uses_;
  std::vector<std::string> name_;
  int names_ = 0;
  std::string text_;
};

}  // namespace

std::string number_text(double value) {
  std::array<char, 32> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

Expressions Expressions::parse(std::string_view text) {
  return ExpressionParser(text).parse();
}

std::string Expressions::text() const {
  return ExpressionPrinter(nodes_, results_).take();
}

}  // namespace consist
