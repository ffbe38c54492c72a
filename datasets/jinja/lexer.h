// A program in Jinja as tokens, with transformers' settings: trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace consist::jinja {

struct Token {
  enum class Kind { data, print_begin, print_end, block_begin, block_end, name, text, integer, real, sign, end };
  Kind kind = Kind::end;
  std::string text;  ///< data, a name, a sign, the value of a text, digits
  int line = 1;
};

/// Throws DataError "line 3: ...".
std::vector<Token> tokens_of(std::string_view program);

[[noreturn]] void fail_at(int line, const std::string& what);

}  // namespace consist::jinja
