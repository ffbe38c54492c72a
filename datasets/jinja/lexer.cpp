#include "datasets/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "consist/error.h"
#include "consist/text.h"
#include "datasets/jinja/text.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::jinja {
namespace {

using Kind = Token::Kind;

constexpr std::size_t most_tokens = 200000;

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

/// One newline at the end is left out, and each newline is \n, as jinja2 reads a program.
std::string normal_program(std::string_view program) {
  std::string text;
  for (std::size_t at = 0; at < program.size(); ++at) {
    if (program[at] == '\r') {
      text += '\n';
      if (at + 1 < program.size() && program[at + 1] == '\n') ++at;
    } else {
      text += program[at];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view program) : text_(normal_program(program)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag();
      data_before(tag);
      if (tag == std::string::npos) break;
      const char kind = text_[tag + 1];
      at_ = tag + 2;
      if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
      if (kind == '#') {
        comment(tag);
      } else {
        inside(kind == '{');
      }
    }
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  std::size_t next_tag() const {
    for (std::size_t open = text_.find('{', at_); open != std::string::npos; open = text_.find('{', open + 1)) {
      if (open + 1 < text_.size() && (text_[open + 1] == '{' || text_[open + 1] == '%' || text_[open + 1] == '#')) return open;
    }
    return std::string::npos;
  }

  void count_lines(std::size_t from, std::size_t to) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<std::ptrdiff_t>(from), text_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
  }
  void add(Kind kind, std::string text) {
    if (tokens_.size() >= most_tokens) fail_at(line_, "it has more than " + std::to_string(most_tokens) + " words and signs");
    tokens_.push_back({kind, std::move(text), line_});
  }

  /// The text before the tag at `tag`, without the space that the tag takes away.
  void data_before(std::size_t tag) {
    const std::size_t end = std::min(tag, text_.size());
    std::string_view data = std::string_view(text_).substr(at_, end - at_);
    if (tag != std::string::npos) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
      if (sign == '-') {
        data = data.substr(0, stripped_range(data, nullptr, false, true).second);
      } else if (sign != '+' && text_[tag + 1] != '{') {
        const std::size_t line = data.rfind('\n') == std::string_view::npos ? 0 : data.rfind('\n') + 1;
        const bool begins_line = line > 0 || at_ == 0 || text_[at_ - 1] == '\n';
        if (begins_line && stripped_range(data.substr(line), nullptr, true, false).first == data.size() - line)
          data = data.substr(0, line);
      }
    }
    if (!data.empty()) add(Kind::data, std::string(data));
    count_lines(at_, end);
    at_ = end;
  }

  /// Behind a tag: with - all space goes, behind blocks and comments one newline unless there is a +.
  void behind_tag(char sign, bool is_print) {
    if (sign == '-') {
      const std::size_t skipped = stripped_range(std::string_view(text_).substr(at_), nullptr, true, false).first;
      count_lines(at_, at_ + skipped);
      at_ += skipped;
    } else if (sign != '+' && !is_print && at_ < text_.size() && text_[at_] == '\n') {
      ++line_;
      ++at_;
    }
  }

  void comment(std::size_t tag) {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) fail_at(line_, "a comment is not closed");
    const char sign = end > tag + 2 ? text_[end - 1] : ' ';
    count_lines(tag, end);
    at_ = end + 2;
    behind_tag(sign, false);
  }

  void inside(bool is_print) {
    const int begun = line_;
    add(is_print ? Kind::print_begin : Kind::block_begin, "");
    const std::string_view close = is_print ? "}}" : "%}";
    std::size_t open_brackets = 0;
    while (true) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0)
        line_ += text_[at_++] == '\n' ? 1 : 0;
      if (at_ >= text_.size()) fail_at(begun, "a tag is not closed");
      const std::string_view rest = std::string_view(text_).substr(at_);
      const bool has_sign = rest.front() == '-' || (rest.front() == '+' && !is_print);
      if (open_brackets == 0 && (rest.starts_with(close) || (has_sign && rest.substr(1).starts_with(close)))) {
        at_ += has_sign && !rest.starts_with(close) ? 3 : 2;
        add(is_print ? Kind::print_end : Kind::block_end, "");
        behind_tag(has_sign && !rest.starts_with(close) ? rest.front() : ' ', is_print);
        if (!is_print && is_raw()) raw();
        return;
      }
      if (rest.front() == '"' || rest.front() == '\'') {
        quoted(rest.front());
      } else if (std::isdigit(static_cast<unsigned char>(rest.front())) != 0) {
        number();
      } else if (is_name(rest.front())) {
        const std::size_t begin = at_;
        while (at_ < text_.size() && is_name(text_[at_])) ++at_;
        add(Kind::name, text_.substr(begin, at_ - begin));
      } else {
        sign(rest, open_brackets);
      }
    }
  }

  void sign(std::string_view rest, std::size_t& open_brackets) {
    static constexpr std::array<std::string_view, 6> twos{"==", "!=", "<=", ">=", "//", "**"};
    static constexpr std::string_view ones = "+-*/%~|.,:()[]{}=<>";
    for (const std::string_view two : twos) {
      if (!rest.starts_with(two)) continue;
      add(Kind::sign, std::string(two));
      at_ += 2;
      return;
    }
    if (ones.find(rest.front()) == std::string_view::npos) fail_at(line_, "it has the sign " + in_quotes(rest.substr(0, 1)));
    if (std::string_view("([{").find(rest.front()) != std::string_view::npos) ++open_brackets;
    if (std::string_view(")]}").find(rest.front()) != std::string_view::npos && open_brackets > 0) --open_brackets;
    add(Kind::sign, std::string(1, rest.front()));
    ++at_;
  }

  void number() {
    const std::size_t begin = at_;
    bool real = false;
    const auto digits = [&] {
      while (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) ++at_;
    };
    digits();
    if (at_ + 1 < text_.size() && text_[at_] == '.' && std::isdigit(static_cast<unsigned char>(text_[at_ + 1])) != 0) {
      real = true;
      ++at_;
      digits();
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      real = true;
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
      digits();
    }
    std::string text = text_.substr(begin, at_ - begin);
    std::erase(text, '_');
    if (text.size() > 18 && !real) fail_at(line_, "the number " + in_quotes(text, 40) + " is too large");
    add(real ? Kind::real : Kind::integer, std::move(text));
  }

  /// As Python's unicode-escape reads it.
  void quoted(char quote) {
    std::string value;
    const int begun = line_;
    for (++at_;; ++at_) {
      if (at_ >= text_.size()) fail_at(begun, "a text is not closed");
      const char c = text_[at_];
      if (c == quote) break;
      if (c == '\n') ++line_;
      if (c != '\\') {
        value += c;
        continue;
      }
      if (++at_ >= text_.size()) fail_at(begun, "a text is not closed");
      escape(text_[at_], value);
    }
    ++at_;
    add(Kind::text, std::move(value));
  }
  void escape(char c, std::string& value) {
    static constexpr std::string_view letters = "ntrabfv\\'\"", stand_for = "\n\t\r\a\b\f\v\\'\"";
    if (const std::size_t known = letters.find(c); known != std::string_view::npos) {
      value += stand_for[known];
    } else if (c == '\n') {
      ++line_;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
      const std::string hex = text_.substr(at_ + 1, digits);
      if (hex.size() != digits || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
        fail_at(line_, std::string("\\") + c + " needs " + std::to_string(digits) + " hexadecimal digits");
      const unsigned long point = std::stoul(hex, nullptr, 16);
      if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
        fail_at(line_, "\\" + std::string(1, c) + hex + " is no character");
      tokenizer::append_utf8(value, static_cast<char32_t>(point));
      at_ += digits;
    } else if (c >= '0' && c <= '7') {
      unsigned point = 0;
      std::size_t count = 0;
      for (; count < 3 && at_ + count < text_.size() && text_[at_ + count] >= '0' && text_[at_ + count] <= '7'; ++count)
        point = point * 8 + static_cast<unsigned>(text_[at_ + count] - '0');
      tokenizer::append_utf8(value, static_cast<char32_t>(point));
      at_ += count - 1;
    } else if (c == 'N') {
      fail_at(line_, "a character by its name, \\N{...}, is not supported; write it as it is");
    } else {
      (value += '\\') += c;
    }
  }

  bool is_raw() const {
    return tokens_.size() >= 3 && tokens_[tokens_.size() - 2].text == "raw" &&
           tokens_[tokens_.size() - 3].kind == Kind::block_begin;
  }
  /// Text up to {% endraw %}, as it stands.
  void raw() {
    tokens_.resize(tokens_.size() - 3);
    for (std::size_t open = text_.find("{%", at_); open != std::string::npos; open = text_.find("{%", open + 1)) {
      std::size_t word = open + 2;
      const char before = word < text_.size() ? text_[word] : ' ';
      if (before == '-' || before == '+') ++word;
      while (word < text_.size() && std::isspace(static_cast<unsigned char>(text_[word])) != 0) ++word;
      if (text_.compare(word, 6, "endraw") != 0) continue;
      data_before(open);
      const std::size_t end = text_.find("%}", word);
      if (end == std::string::npos) break;
      const char sign = text_[end - 1];
      count_lines(at_, end);
      at_ = end + 2;
      return behind_tag(sign, false);
    }
    fail_at(line_, "{% raw %} is not closed");
  }

  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

void fail_at(int line, const std::string& what) {
  throw DataError("line " + std::to_string(line) + ": " + what);
}

std::vector<Token> tokens_of(std::string_view program) {
  return Lexer(program).run();
}

}  // namespace consist::jinja
