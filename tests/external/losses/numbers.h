// Numbers in expressions.
#pragma once

#include <array>
#include <charconv>
#include <string>

/// The shortest text that reads as this number.
inline std::string number(double value) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}
