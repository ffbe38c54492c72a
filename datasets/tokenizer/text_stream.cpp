#include "datasets/tokenizer/text_stream.h"

#include <algorithm>

#include "datasets/tokenizer/unicode.h"

namespace consist::tokenizer {
namespace {

constexpr const char* replacement = "\xef\xbf\xbd";  // U+FFFD

bool is_within(std::string_view text, std::size_t at, unsigned low, unsigned high) {
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte >= low && byte <= high;
}

/// Counts the bytes that could have begun the invalid character at the front of `text`, at least 1; `complete` is false
/// where further bytes might make it valid.
std::size_t begun(std::string_view text, bool& complete) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first >= 0xf0 && first <= 0xf4  ? 4
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xc2 && first < 0xe0 ? 2
                                                             : 1;
  complete = true;
  // The second byte's range keeps out overlong forms, surrogates, and what is beyond Unicode.
  const unsigned low = first == 0xe0   ? 0xa0
                       : first == 0xf0 ? 0x90
                                       : 0x80,
                 high = first == 0xed   ? 0x9f
                        : first == 0xf4 ? 0x8f
                                        : 0xbf;
  std::size_t count = 1;
  while (count < length) {
    if (count == text.size()) {
      complete = false;
      return count;
    }
    if (!is_within(text, count, count == 1 ? low : 0x80, count == 1 ? high : 0xbf)) return count;
    ++count;
  }
  return count;
}

}  // namespace

std::string TextStream::push(std::int32_t id) {
  pending_ += tokenizer_.bytes_of(id);
  return take_whole(false);
}

std::string TextStream::finish() {
  return take_whole(true);
}

std::string TextStream::take_whole(bool all) {
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const std::size_t valid = std::min(invalid_utf8(rest), rest.size());
    text += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    bool complete = true;
    const std::size_t count = begun(rest, complete);
    if (!complete && !all) break;
    text += replacement;
    rest.remove_prefix(count);
  }
  pending_ = std::string(rest);
  return text;
}

}  // namespace consist::tokenizer
