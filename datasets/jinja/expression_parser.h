// Expressions of Jinja, in its order of precedence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "datasets/jinja/ast.h"
#include "datasets/jinja/lexer.h"

namespace consist::jinja {

inline constexpr int most_nesting = 100;  // of expressions and of blocks in each other
inline constexpr int most_height = 500;   // of an expression, whose links of a chain count, too

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is_sign(std::string_view text) const { return now().kind == Token::Kind::sign && now().text == text; }
  bool is_word(std::string_view text) const { return now().kind == Token::Kind::name && now().text == text; }
  bool take_sign(std::string_view text) { return is_sign(text) && (take(), true); }
  bool take_word(std::string_view text) { return is_word(text) && (take(), true); }
  void expect_sign(std::string_view text);
  void expect_word(std::string_view text);
  std::string expect_name();
  [[noreturn]] void fail(const std::string& what) const;

  NodePtr expression(bool with_condition = true);
  /// An expression, or several with commas between, which are a tuple.
  NodePtr expressions(bool with_condition = true);
  /// `|name(...)|...` behind `of`, which may be null: that of a filter block.
  NodePtr filters(NodePtr of);
  /// One level deeper, until the object goes.
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& parser);
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  using Rule = NodePtr (ExpressionParser::*)();
  NodePtr node(Node::Kind kind, NodePtr first = nullptr, NodePtr second = nullptr) const;
  void grow(Node& node, const Node& part) const;
  void add(Node& node, NodePtr part) const;
  NodePtr either();
  NodePtr both();
  NodePtr negation();
  NodePtr comparison();
  NodePtr binary(Rule operand, std::initializer_list<std::string_view> signs);
  NodePtr sum();
  NodePtr joined();
  NodePtr product();
  NodePtr power();
  NodePtr unary() { return unary_with(true); }
  NodePtr unary_with(bool with_filters);
  NodePtr primary();
  NodePtr bracketed();
  NodePtr dict();
  NodePtr behind(NodePtr of);
  NodePtr subscript(NodePtr of);
  NodePtr test(NodePtr of);
  NodePtr filter_or_test(NodePtr of);
  void arguments(Node& call);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace consist::jinja
