#include <algorithm>

#include "consist/text.h"
#include "datasets/jinja/expression_parser.h"

namespace consist::jinja {
namespace {

using Kind = Statement::Kind;
using Ends = std::vector<std::string_view>;

class Parser {
 public:
  explicit Parser(std::string_view program) : in_(tokens_of(program)) {}

  Body run() {
    Body body = statements({});
    if (in_.now().kind != Token::Kind::end) in_.fail("{% " + in_.now().text + " %} ends nothing");
    return body;
  }

 private:
  /// Up to a block that begins with one of `ends`, whose {% is taken.
  Body statements(const Ends& ends) {
    const ExpressionParser::Deeper deeper(in_);
    Body body;
    while (in_.now().kind != Token::Kind::end) {
      Statement made;
      made.line = in_.now().line;
      if (in_.now().kind == Token::Kind::data) {
        made.text = in_.take().text;
        body.push_back(std::move(made));
      } else if (in_.now().kind == Token::Kind::print_begin) {
        in_.take();
        made.kind = Kind::print;
        made.expression = in_.expressions();
        expect(Token::Kind::print_end, "}}");
        body.push_back(std::move(made));
      } else {
        expect(Token::Kind::block_begin, "{%");
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return in_.is_word(end); })) return body;
        block(made);
        body.push_back(std::move(made));
      }
    }
    if (!ends.empty()) in_.fail("{% " + std::string(ends.back()) + " %} is missing");
    return body;
  }

  void expect(Token::Kind kind, const char* sign) {
    if (in_.now().kind != kind) in_.fail("there is " + in_quotes(in_.now().text, 40) + " where \"" + sign + "\" is expected");
    in_.take();
  }
  void end_of_block() { expect(Token::Kind::block_end, "%}"); }
  /// A body up to {% word %}.
  Body body_until(std::string_view word) {
    end_of_block();
    Body body = statements({word});
    in_.expect_word(word);
    end_of_block();
    return body;
  }

  void block(Statement& made) {
    const std::string word = in_.expect_name();
    if (word == "if") return branch(made);
    if (word == "for") return loop(made);
    if (word == "set") return set(made);
    if (word == "macro") return macro(made);
    if (word == "with") return with(made);
    if (word == "generation") {
      made.kind = Kind::generation;
      made.bodies.push_back(body_until("endgeneration"));
    } else if (word == "filter") {
      made.kind = Kind::filter;
      made.expression = in_.filters(nullptr);
      made.bodies.push_back(body_until("endfilter"));
    } else if (word == "break" || word == "continue") {
      if (loops_ == 0) in_.fail("{% " + word + " %} is not within a loop");
      made.kind = word == "break" ? Kind::leave : Kind::next;
      end_of_block();
    } else {
      in_.fail("{% " + word + " %} is not supported");
    }
  }

  void branch(Statement& made) {
    made.kind = Kind::branch;
    made.conditions.push_back(in_.expressions());
    while (true) {
      end_of_block();
      made.bodies.push_back(statements({"elif", "else", "endif"}));
      if (in_.take_word("elif")) {
        made.conditions.push_back(in_.expressions());
      } else if (in_.take_word("else")) {
        made.conditions.push_back(nullptr);
        made.bodies.push_back(body_until("endif"));
        return;
      } else {
        in_.expect_word("endif");
        return end_of_block();
      }
    }
  }

  std::vector<std::string> names() {
    std::vector<std::string> all;
    const bool bracket = in_.take_sign("(");
    do all.push_back(in_.expect_name());
    while (in_.take_sign(","));
    if (bracket) in_.expect_sign(")");
    return all;
  }

  void loop(Statement& made) {
    made.kind = Kind::loop;
    made.targets = names();
    in_.expect_word("in");
    made.expression = in_.expressions(false);
    if (in_.take_word("if")) made.condition = in_.expression();
    if (in_.is_word("recursive")) in_.fail("a recursive loop is not supported");
    end_of_block();
    ++loops_;
    made.bodies.push_back(statements({"else", "endfor"}));
    --loops_;
    if (in_.take_word("else")) {
      made.bodies.push_back(body_until("endfor"));
    } else {
      in_.expect_word("endfor");
      end_of_block();
    }
  }

  void set(Statement& made) {
    made.kind = Kind::set;
    made.targets = names();
    if (made.targets.size() == 1 && in_.take_sign(".")) made.attribute = in_.expect_name();
    if (in_.take_sign("=")) {
      made.expression = in_.expressions();
      return end_of_block();
    }
    made.kind = Kind::set_block;
    if (made.targets.size() != 1) in_.fail("a block is set to one name");
    if (in_.take_sign("|")) made.expression = in_.filters(nullptr);
    made.bodies.push_back(body_until("endset"));
  }

  void macro(Statement& made) {
    made.kind = Kind::macro;
    made.text = in_.expect_name();
    in_.expect_sign("(");
    while (!in_.take_sign(")")) {
      if (!made.targets.empty()) in_.expect_sign(",");
      made.targets.push_back(in_.expect_name());
      made.conditions.push_back(in_.take_sign("=") ? in_.expression() : nullptr);
    }
    const int loops = std::exchange(loops_, 0);
    made.bodies.push_back(body_until("endmacro"));
    loops_ = loops;
  }

  void with(Statement& made) {
    made.kind = Kind::with;
    while (in_.now().kind == Token::Kind::name) {
      made.targets.push_back(in_.expect_name());
      in_.expect_sign("=");
      made.conditions.push_back(in_.expression());
      if (!in_.take_sign(",")) break;
    }
    made.bodies.push_back(body_until("endwith"));
  }

  ExpressionParser in_;
  int loops_ = 0;
};

}  // namespace

Body parse(std::string_view program) {
  return Parser(program).run();
}

}  // namespace consist::jinja
