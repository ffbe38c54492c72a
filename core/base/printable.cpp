#include <cstdio>

#include "consist/text.h"
#include "core/base/one_line.h"

namespace consist {
namespace {

/// Bytes of the character at the front of `text`, and its code point; 0 bytes if it is no legal UTF-8 (RFC 3629).
std::size_t first_character(std::string_view text, char32_t& point) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (length == 0 || length > text.size()) return 0;
  point = length == 1 ? lead : lead & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3fU);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool legal = point >= least[length] && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
  return legal ? length : 0;
}

bool moves_text(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

void append_number(std::string& out, const char* format, unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, format, value);
  out += text;
}

std::string escape(std::string_view text, bool on_one_line, bool quoted) {
  std::string out;
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    char32_t point = 0;
    const std::size_t length = first_character(text, point);
    if (length == 0) {
      append_number(out, "\\x%02x", static_cast<unsigned char>(text[0]));
    } else if (point == U'\n' || point == U'\t') {
      out += !on_one_line ? std::string(1, text[0]) : point == U'\n' ? "\\n" : "\\t";
    } else if (moves_text(point)) {
      append_number(out, "\\u%04x", static_cast<unsigned>(point));
    } else {
      if (quoted && (point == U'"' || point == U'\\')) out += '\\';
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return escape(text, false, false);
}

std::string one_line(std::string_view text) {
  return escape(text, true, false);
}

std::string in_quotes(std::string_view text, std::size_t most) {
  if (text.size() <= most) return '"' + escape(text, true, true) + '"';
  std::size_t end = most;
  while (end > 0 && end + 3 > most && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) --end;
  return '"' + escape(text.substr(0, end), true, true) + "\"...";
}

}  // namespace consist
