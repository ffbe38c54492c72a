#include "datasets/jinja/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "datasets/tokenizer/unicode.h"

namespace consist::jinja {

using tokenizer::read_utf8;

Text text_from(std::string bytes, std::int32_t origin) {
  Text text{std::move(bytes), {}};
  if (origin != no_origin) text.marks.push_back({0, text.bytes.size(), origin});
  return text;
}

std::int32_t origin_of(const Text& text) {
  return text.marks.empty() ? no_origin : text.marks.front().origin;
}

void append(Text& to, const Text& text) {
  const std::size_t at = to.bytes.size();
  to.bytes += text.bytes;
  for (const Mark& mark : text.marks) to.marks.push_back({mark.begin + at, mark.end + at, mark.origin});
}

void append(Text& to, std::string_view bytes) {
  to.bytes += bytes;
}

Text part_of(const Text& text, std::size_t begin, std::size_t end) {
  Text part{text.bytes.substr(begin, end - begin), {}};
  for (const Mark& mark : text.marks) {
    const std::size_t from = std::max(mark.begin, begin), to = std::min(mark.end, end);
    // A mark that is touched without a byte of it being taken keeps its place only where nothing else is left.
    if (from < to || (from == to && (mark.begin == mark.end || begin == end)))
      part.marks.push_back({from - begin, to - begin, mark.origin});
  }
  return part;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::pair<std::size_t, std::size_t> stripped_range(std::string_view text, const std::string* characters, bool left, bool right) {
  const auto goes = [&](std::size_t at, std::size_t& length) {
    const char32_t c = read_utf8(text, at, length);
    if (characters == nullptr) return is_space(c);
    return characters->find(text.substr(at, length)) != std::string::npos;
  };
  std::size_t begin = 0, end = text.size(), length = 0;
  while (left && begin < end && goes(begin, length)) begin += length;
  while (right && end > begin) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(text[last]) & 0xc0U) == 0x80) --last;
    if (!goes(last, length)) break;
    end = last;
  }
  return {begin, end};
}

std::size_t length_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }));
}

std::size_t byte_of(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80) continue;
    if (index-- == 0) break;
  }
  return at;
}

std::string python_repr(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    char escaped[8];
    if (c == quote || c == '\\') {
      (out += '\\') += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : (c == '\r' ? "\\r" : "\\t");
    } else if (byte < 0x20 || byte == 0x7f) {
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[40];
  const double size = std::fabs(value);
  const bool plain = value == 0 || (size >= 1e-4 && size < 1e16);
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(digits, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace consist::jinja
