// Whole numbers of a shell script.
#pragma once

#include <cctype>
#include <cstdint>
#include <optional>
#include <string>

namespace consist::shell {

inline std::optional<std::int64_t> whole(const std::string& text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  if (text.find_first_not_of("0123456789", text[0] == '-' ? 1 : 0) != std::string::npos || text == "-") return std::nullopt;
  return std::stoll(text);
}

/// Whole numbers with + - * / % and brackets; nothing for anything else.
class Arithmetic {
 public:
  explicit Arithmetic(const std::string& text) : text_(text) {}
  std::optional<std::int64_t> value() {
    const std::int64_t result = sum(0);
    skip();
    return failed_ || at_ != text_.size() ? std::nullopt : std::optional(result);
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  char next() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  /// `result` is read after the call that wrote it has said whether it overflowed.
  std::int64_t checked(bool overflow, const std::int64_t& result) {
    failed_ = failed_ || overflow;
    return result;
  }
  std::int64_t sum(int depth) {
    std::int64_t left = product(depth);
    for (char c = next(); !failed_ && (c == '+' || c == '-'); c = next()) {
      ++at_;
      std::int64_t result = 0;
      const std::int64_t right = product(depth);
      left = c == '+' ? checked(__builtin_add_overflow(left, right, &result), result)
                      : checked(__builtin_sub_overflow(left, right, &result), result);
    }
    return left;
  }
  std::int64_t product(int depth) {
    std::int64_t left = term(depth);
    for (char c = next(); !failed_ && (c == '*' || c == '/' || c == '%'); c = next()) {
      ++at_;
      const std::int64_t right = term(depth);
      std::int64_t result = 0;
      if (c == '*') {
        left = checked(__builtin_mul_overflow(left, right, &result), result);
      } else if (right <= 0) {
        failed_ = true;
      } else {
        left = c == '/' ? left / right : left % right;
      }
    }
    return left;
  }
  std::int64_t term(int depth) {
    if (depth > 16) failed_ = true;
    if (failed_) return 0;
    if (next() == '(') {
      ++at_;
      const std::int64_t inner = sum(depth + 1);
      if (next() != ')') failed_ = true;
      ++at_;
      return inner;
    }
    std::string digits;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) digits += text_[at_++];
    const std::optional<std::int64_t> number = whole(digits);
    if (!number) failed_ = true;
    return number.value_or(0);
  }

  const std::string& text_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace consist::shell
