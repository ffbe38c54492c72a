// Texts that know where they come from: which message of a conversation wrote which bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace consist::jinja {

/// Bytes [begin, end) of a text that come from `origin`, a number that the caller gives to what it passes in. May be empty: an
/// empty text has a place, too.
struct Mark {
  std::size_t begin = 0, end = 0;
  std::int32_t origin = 0;
};

struct Text {
  std::string bytes;
  std::vector<Mark> marks;  ///< in order, without overlaps
};

inline constexpr std::int32_t no_origin = -1;

/// A text all of which comes from `origin`.
Text text_from(std::string bytes, std::int32_t origin = no_origin);
/// The first origin that a text has, or no_origin.
std::int32_t origin_of(const Text& text);
void append(Text& to, const Text& text);
void append(Text& to, std::string_view bytes);
/// Bytes [begin, end).
Text part_of(const Text& text, std::size_t begin, std::size_t end);

/// True for a character that Python's str.strip() removes.
bool is_space(char32_t c);
/// The range of bytes that is left without characters of `characters` at the sides that are named; without space if it is null.
std::pair<std::size_t, std::size_t> stripped_range(std::string_view text, const std::string* characters, bool left, bool right);
/// Characters, as Python counts them.
std::size_t length_of(std::string_view text);
/// Where character `index` begins; the size of the text behind the last one.
std::size_t byte_of(std::string_view text, std::size_t index);
/// As Python prints a text within a list.
std::string python_repr(std::string_view text);
/// As Python prints a float.
std::string python_float(double value);

}  // namespace consist::jinja
