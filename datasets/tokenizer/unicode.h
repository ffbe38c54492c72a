// UTF-8 and Unicode normalization.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace consist::tokenizer {

/// Offset of the first byte that is not part of valid UTF-8 (RFC 3629: no surrogates, nothing overlong); npos if all of it is
/// valid.
std::size_t invalid_utf8(std::string_view text) noexcept;

/// Normalization form C of valid UTF-8, by the Unicode version that the reference library has.
std::string to_nfc(std::string_view text);

/// The character that begins at byte `at` of valid UTF-8, and its bytes.
char32_t read_utf8(std::string_view text, std::size_t at, std::size_t& length) noexcept;

/// Appends the code point as UTF-8.
void append_utf8(std::string& text, char32_t code_point);

}  // namespace consist::tokenizer
