#include "datasets/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "consist/error.h"

namespace consist::tokenizer {

std::size_t invalid_utf8(std::string_view text) noexcept {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const int length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() - i < static_cast<std::size_t>(length)) return i;
    std::uint32_t point = first & (0xffU >> (length + 1));
    for (int k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]);
      if ((next & 0xc0) != 0x80) return i;
      point = point << 6 | (next & 0x3fU);
    }
    const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
    if (overlong || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return i;
    i += static_cast<std::size_t>(length);
  }
  return std::string_view::npos;
}

namespace {

struct Range {
  char32_t first, last;
};

/// The reference (tokenizers 0.22) normalizes by the tables of Unicode 9; these characters came later and stand still in it,
/// while utf8proc reorders or composes them. Found by comparing both over all code points.
constexpr Range newer_than_reference[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
    {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x10d24, 0x10d27},
    {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
    {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
    {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
    {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}};

bool is_newer_than_reference(char32_t c) {
  const Range* range = std::lower_bound(std::begin(newer_than_reference), std::end(newer_than_reference), c,
                                        [](const Range& range, char32_t c) { return range.last < c; });
  return range != std::end(newer_than_reference) && range->first <= c;
}

void append_nfc(std::string_view text, std::string& normalized) {
  if (text.empty()) return;
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (length < 0) throw DataError(std::string("text cannot be normalized: ") + utf8proc_errmsg(length));
  normalized.append(reinterpret_cast<char*>(out), static_cast<std::size_t>(length));
  std::free(out);
}

}  // namespace

std::string to_nfc(std::string_view text) {
  // Text of ASCII alone is in every normal form.
  bool ascii = true;
  for (char c : text) ascii &= static_cast<unsigned char>(c) < 0x80;
  if (ascii) return std::string(text);
  std::string normalized;
  normalized.reserve(text.size());
  std::size_t done = 0;  // a character that stands still is a border over which nothing is reordered or composed
  for (std::size_t i = 0; i < text.size();) {
    std::size_t length = 0;
    const char32_t c = read_utf8(text, i, length);
    if (is_newer_than_reference(c)) {
      append_nfc(text.substr(done, i - done), normalized);
      normalized.append(text, i, length);
      done = i + length;
    }
    i += length;
  }
  append_nfc(text.substr(done), normalized);
  return normalized;
}

char32_t read_utf8(std::string_view text, std::size_t at, std::size_t& length) noexcept {
  const auto first = static_cast<unsigned char>(text[at]);
  length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  char32_t point = length == 1 ? first : first & (0xffU >> (length + 1));
  for (std::size_t k = 1; k < length; ++k) point = point << 6 | (static_cast<unsigned char>(text[at + k]) & 0x3fU);
  return point;
}

void append_utf8(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xc0 | c >> 6);
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xe0 | c >> 12);
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | c >> 18);
    text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  }
}

}  // namespace consist::tokenizer
