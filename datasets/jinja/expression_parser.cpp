#include "datasets/jinja/expression_parser.h"

#include <algorithm>
#include <cstdlib>

#include "consist/text.h"
#include "datasets/jinja/builtins.h"

namespace consist::jinja {

using Kind = Node::Kind;

ExpressionParser::Deeper::Deeper(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ > most_nesting) parser_.fail("it is nested more than " + std::to_string(most_nesting) + " deep");
}

void ExpressionParser::fail(const std::string& what) const {
  fail_at(now().line, what);
}

void ExpressionParser::expect_sign(std::string_view text) {
  if (!take_sign(text)) fail("there is " + in_quotes(now().text, 40) + " where " + in_quotes(text) + " is expected");
}

void ExpressionParser::expect_word(std::string_view text) {
  if (!take_word(text)) fail("there is " + in_quotes(now().text, 40) + " where " + in_quotes(text) + " is expected");
}

std::string ExpressionParser::expect_name() {
  if (now().kind != Token::Kind::name) fail("there is " + in_quotes(now().text, 40) + " where a name is expected");
  return take().text;
}

NodePtr ExpressionParser::node(Kind kind, NodePtr first, NodePtr second) const {
  auto made = std::make_unique<Node>();
  made->kind = kind;
  made->line = now().line;
  if (first) add(*made, std::move(first));
  if (second) add(*made, std::move(second));
  return made;
}

/// Evaluating and freeing a node go as deep as it is high.
void ExpressionParser::grow(Node& node, const Node& part) const {
  node.height = std::max(node.height, part.height + 1);
  if (node.height > most_height) fail("an expression is nested more than " + std::to_string(most_height) + " deep");
}

void ExpressionParser::add(Node& node, NodePtr part) const {
  if (part) grow(node, *part);
  node.parts.push_back(std::move(part));
}

NodePtr ExpressionParser::expressions(bool with_condition) {
  NodePtr first = expression(with_condition);
  if (!is_sign(",")) return first;
  NodePtr tuple = node(Kind::tuple, std::move(first));
  while (take_sign(",")) {
    if (now().kind == Token::Kind::block_end || now().kind == Token::Kind::print_end || is_sign(")")) break;
    add(*tuple, expression(with_condition));
  }
  return tuple;
}

NodePtr ExpressionParser::expression(bool with_condition) {
  const Deeper deeper(*this);
  NodePtr result = either();
  while (with_condition && take_word("if")) {
    NodePtr condition = either();
    result = node(Kind::conditional, std::move(result), std::move(condition));
    add(*result, take_word("else") ? expression() : nullptr);
  }
  return result;
}

NodePtr ExpressionParser::either() {
  NodePtr left = both();
  while (take_word("or")) left = node(Kind::either, std::move(left), both());
  return left;
}

NodePtr ExpressionParser::both() {
  NodePtr left = negation();
  while (take_word("and")) left = node(Kind::both, std::move(left), negation());
  return left;
}

NodePtr ExpressionParser::negation() {
  if (!take_word("not")) return comparison();
  const Deeper deeper(*this);
  return node(Kind::negated, negation());
}

NodePtr ExpressionParser::comparison() {
  NodePtr first = sum();
  NodePtr chain;
  while (true) {
    std::string operation;
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (operation.empty() && take_sign(sign)) operation = sign;
    }
    if (operation.empty() && take_word("in")) operation = "in";
    if (operation.empty() && is_word("not") && next().kind == Token::Kind::name && next().text == "in") {
      take();
      take();
      operation = "not in";
    }
    if (operation.empty()) return chain ? std::move(chain) : std::move(first);
    if (!chain) chain = node(Kind::comparison, std::move(first));
    chain->operations.push_back(operation);
    add(*chain, sum());
  }
}

NodePtr ExpressionParser::binary(Rule operand, std::initializer_list<std::string_view> signs) {
  NodePtr left = (this->*operand)();
  while (true) {
    std::string operation;
    for (const std::string_view sign : signs) {
      if (operation.empty() && take_sign(sign)) operation = sign;
    }
    if (operation.empty()) return left;
    left = node(Kind::binary, std::move(left), (this->*operand)());
    left->name = operation;
  }
}

NodePtr ExpressionParser::sum() {
  return binary(&ExpressionParser::joined, {"+", "-"});
}
NodePtr ExpressionParser::joined() {
  return binary(&ExpressionParser::product, {"~"});
}
NodePtr ExpressionParser::product() {
  return binary(&ExpressionParser::power, {"*", "//", "/", "%"});
}
NodePtr ExpressionParser::power() {
  return binary(&ExpressionParser::unary, {"**"});
}

NodePtr ExpressionParser::unary_with(bool with_filters) {
  const Deeper deeper(*this);
  NodePtr result;
  if (take_sign("-")) {
    result = node(Kind::minus, unary_with(false));
  } else if (take_sign("+")) {
    result = node(Kind::plus, unary_with(false));
  } else {
    result = primary();
  }
  result = behind(std::move(result));
  return with_filters ? filter_or_test(std::move(result)) : std::move(result);
}

NodePtr ExpressionParser::primary() {
  NodePtr made = node(Kind::constant);
  const Token token = now();
  switch (token.kind) {
    case Token::Kind::name:
      take();
      if (token.text == "true" || token.text == "True") {
        made->value = true;
      } else if (token.text == "false" || token.text == "False") {
        made->value = false;
      } else if (token.text == "none" || token.text == "None") {
        made->value = None{};
      } else {
        made->kind = Kind::name;
        made->name = token.text;
      }
      return made;
    case Token::Kind::text: {
      std::string text;
      while (now().kind == Token::Kind::text) text += take().text;
      made->value = Value::text(std::move(text));
      return made;
    }
    case Token::Kind::integer:
      made->value = static_cast<std::int64_t>(std::strtoll(take().text.c_str(), nullptr, 10));
      return made;
    case Token::Kind::real:
      made->value = std::strtod(take().text.c_str(), nullptr);
      return made;
    default:
      return bracketed();
  }
}

NodePtr ExpressionParser::bracketed() {
  if (take_sign("(")) {
    if (take_sign(")")) return node(Kind::tuple);
    NodePtr inner = expressions();
    expect_sign(")");
    return inner;
  }
  if (is_sign("{")) return dict();
  if (!take_sign("[")) fail("there is " + in_quotes(now().text, 40) + " where a value is expected");
  NodePtr list = node(Kind::list);
  while (!take_sign("]")) {
    if (!list->parts.empty()) expect_sign(",");
    if (take_sign("]")) break;
    add(*list, expression());
  }
  return list;
}

NodePtr ExpressionParser::dict() {
  expect_sign("{");
  NodePtr made = node(Kind::dict);
  while (!take_sign("}")) {
    if (!made->parts.empty()) expect_sign(",");
    if (take_sign("}")) break;
    add(*made, expression());
    expect_sign(":");
    add(*made, expression());
  }
  return made;
}

NodePtr ExpressionParser::behind(NodePtr of) {
  while (true) {
    if (take_sign(".")) {
      if (now().kind == Token::Kind::integer) {
        NodePtr index = node(Kind::constant);
        index->value = static_cast<std::int64_t>(std::strtoll(take().text.c_str(), nullptr, 10));
        of = node(Kind::item, std::move(of), std::move(index));
        continue;
      }
      of = node(Kind::attribute, std::move(of));
      of->name = expect_name();
    } else if (is_sign("[")) {
      of = subscript(std::move(of));
    } else if (is_sign("(")) {
      of = node(Kind::call, std::move(of));
      arguments(*of);
    } else {
      return of;
    }
  }
}

NodePtr ExpressionParser::subscript(NodePtr of) {
  expect_sign("[");
  NodePtr bounds[3];
  int colons = 0;
  while (!take_sign("]")) {
    if (take_sign(":")) {
      if (++colons > 2) fail("a slice has more than two colons");
    } else if (bounds[colons]) {
      fail("there is " + in_quotes(now().text, 40) + " where \"]\" is expected");
    } else {
      bounds[colons] = expression();
    }
  }
  if (colons == 0) {
    if (!bounds[0]) fail("there is nothing between [ and ]");
    return node(Kind::item, std::move(of), std::move(bounds[0]));
  }
  NodePtr made = node(Kind::slice, std::move(of));
  for (NodePtr& bound : bounds) add(*made, std::move(bound));
  return made;
}

void ExpressionParser::arguments(Node& call) {
  expect_sign("(");
  bool first = true;
  while (!take_sign(")")) {
    if (!first) expect_sign(",");
    first = false;
    if (take_sign(")")) break;
    if (is_sign("*") || is_sign("**")) fail("arguments out of a list or an object (*) are not supported");
    if (now().kind == Token::Kind::name && next().kind == Token::Kind::sign && next().text == "=") {
      std::string name = take().text;
      take();
      call.named.emplace_back(std::move(name), expression());
      grow(call, *call.named.back().second);
    } else {
      add(call, expression());
    }
  }
}

NodePtr ExpressionParser::filters(NodePtr of) {
  do {
    NodePtr filter = node(Kind::filter, std::move(of));
    if (filter->parts.empty()) filter->parts.push_back(nullptr);
    filter->name = expect_name();
    if (!is_filter(filter->name)) fail("there is no filter " + in_quotes(filter->name, 40) + " here");
    if (is_sign("(")) arguments(*filter);
    of = std::move(filter);
  } while (take_sign("|"));
  return of;
}

NodePtr ExpressionParser::filter_or_test(NodePtr of) {
  while (true) {
    if (take_sign("|")) {
      of = filters(std::move(of));
    } else if (take_word("is")) {
      of = test(std::move(of));
    } else if (is_sign("(")) {
      of = node(Kind::call, std::move(of));
      arguments(*of);
    } else {
      return of;
    }
  }
}

NodePtr ExpressionParser::test(NodePtr of) {
  const bool negated = take_word("not");
  NodePtr made = node(Kind::test, std::move(of));
  made->name = expect_name();
  if (!is_test(made->name)) fail("there is no test " + in_quotes(made->name, 40) + " here");
  using K = Token::Kind;
  const K kind = now().kind;
  if (is_sign("(")) {
    arguments(*made);
  } else if (kind == K::text || kind == K::integer || kind == K::real || is_sign("[") || is_sign("{") ||
             (kind == K::name && !is_word("else") && !is_word("or") && !is_word("and") && !is_word("if") && !is_word("is") &&
              !is_word("not") && !is_word("in"))) {
    add(*made, behind(primary()));
  }
  return negated ? node(Kind::negated, std::move(made)) : std::move(made);
}

}  // namespace consist::jinja
