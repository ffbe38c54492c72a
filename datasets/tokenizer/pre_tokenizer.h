// Splits text into the pieces that are encoded one by one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace consist::tokenizer {

/// One step: cuts pieces at the matches of a regular expression; matches and what lies between them become pieces of their own.
/// The expression has Oniguruma's meaning, in which the reference library reads it; PCRE2 executes it. Immutable; may be used
/// from several threads.
class RegexSplit {
 public:
  /// Throws DataError for an expression that PCRE2 does not compile or that uses what the two engines understand differently.
  explicit RegexSplit(const std::string& pattern);
  ~RegexSplit();
  RegexSplit(RegexSplit&&) noexcept;
  RegexSplit& operator=(RegexSplit&&) noexcept;

  /// Appends the pieces of valid UTF-8. They point into `text`. Throws DataError if the expression's work on the whole text
  /// passes a bound: an expression can be written so that it reads all of the text again at each of its bytes.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

/// The expression that ByteLevel uses by itself (GPT-2's).
extern const char* const gpt2_pattern;

/// Byte-level characters: the 256 characters that stand for bytes in vocabularies. Translates a token back into bytes; throws
/// DataError for a character that stands for none.
std::string bytes_of_token(std::string_view token);
/// True if bytes_of_token() has an answer.
bool is_byte_level(std::string_view token);

}  // namespace consist::tokenizer
