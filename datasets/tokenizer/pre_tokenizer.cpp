#define PCRE2_CODE_UNIT_WIDTH 8
#include "datasets/tokenizer/pre_tokenizer.h"

#include <pcre2.h>

#include <array>
#include <unordered_map>

#include "consist/error.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::tokenizer {

const char* const gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

/// Unicode's White_Space property, which is what Oniguruma's \s means; PCRE2's has U+180E on top.
constexpr const char* white_space = R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// Rewrites what the engines read differently; refuses what has no counterpart.
std::string for_pcre2(const std::string& pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\') {
      if (c == '[') {
        if (in_class) throw DataError("the pre-tokenizer's expression has a set inside a set, which is not supported: " + pattern);
        in_class = true;
      } else if (c == ']') {
        in_class = false;
      } else if (c == '&' && in_class && i + 1 < pattern.size() && pattern[i + 1] == '&') {
        throw DataError("the pre-tokenizer's expression intersects sets, which is not supported: " + pattern);
      }
      out += c;
      continue;
    }
    if (i + 1 == pattern.size()) throw DataError("the pre-tokenizer's expression ends in a backslash: " + pattern);
    const char escaped = pattern[++i];
    switch (escaped) {
      case 's': out += in_class ? white_space : std::string("[") + white_space + "]"; break;
      case 'S':
        if (in_class) throw DataError("the pre-tokenizer's expression has \\S inside a set, which is not supported: " + pattern);
        out += std::string("[^") + white_space + "]";
        break;
      case 'h': case 'H': case 'R': case 'X': case 'G': case 'K': case 'Z': case 'z': case 'A': case 'O': case 'N': case 'y': case 'Y': case 'M': case 'C': case 'g': case 'k':
        throw DataError(std::string("the pre-tokenizer's expression uses \\") + escaped + ", which is not supported: " + pattern);
      default: (out += '\\') += escaped;
    }
  }
  return out;
}

std::string message_of(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

/// Byte-level characters: printable ones stand for themselves, the others follow from U+0100 on.
std::unordered_map<char32_t, unsigned char> byte_characters() {
  std::unordered_map<char32_t, unsigned char> bytes;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    bytes[printable ? static_cast<char32_t>(byte) : next++] = static_cast<unsigned char>(byte);
  }
  return bytes;
}

}  // namespace

struct RegexSplit::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

RegexSplit::RegexSplit(const std::string& pattern) : code_(std::make_unique<Code>()) {
  const std::string translated = for_pcre2(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (code_->code == nullptr) throw DataError("the pre-tokenizer's expression does not compile (" + message_of(error) + "): " + pattern);
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);  // an error only means that it runs interpreted
}

RegexSplit::~RegexSplit() = default;
RegexSplit::RegexSplit(RegexSplit&&) noexcept = default;
RegexSplit& RegexSplit::operator=(RegexSplit&&) noexcept = default;

void RegexSplit::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  std::size_t done = 0, from = 0;
  while (from <= text.size() && !text.empty()) {
    const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) throw DataError("the pre-tokenizer's expression failed on the text: " + message_of(found));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    if (range[1] == range[0]) {  // an empty match cuts nothing; go on behind the next character
      from = range[1] + 1;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80) ++from;
      continue;
    }
    if (range[0] > done) pieces.push_back(text.substr(done, range[0] - done));
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    done = from = range[1];
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
}

std::string bytes_of_token(std::string_view token) {
  static const std::unordered_map<char32_t, unsigned char> bytes = byte_characters();
  if (invalid_utf8(token) != std::string_view::npos) throw DataError("a token is not valid UTF-8");
  std::string out;
  for (std::size_t i = 0; i < token.size();) {
    const auto first = static_cast<unsigned char>(token[i]);
    const int length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    char32_t point = length == 1 ? first : first & (0xffU >> (length + 1));
    for (int k = 1; k < length; ++k) point = point << 6 | (static_cast<unsigned char>(token[i + static_cast<std::size_t>(k)]) & 0x3fU);
    auto byte = bytes.find(point);
    if (byte == bytes.end()) throw DataError("the token '" + std::string(token) + "' has a character that stands for no byte; only byte-level vocabularies are supported");
    out += static_cast<char>(byte->second);
    i += static_cast<std::size_t>(length);
  }
  return out;
}

}  // namespace consist::tokenizer
