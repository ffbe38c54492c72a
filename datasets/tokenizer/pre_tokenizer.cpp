#define PCRE2_CODE_UNIT_WIDTH 8
#include "datasets/tokenizer/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <unordered_map>

#include "consist/error.h"
#include "datasets/tokenizer/unicode.h"
#include "datasets/tokenizer/unicode_classes.h"

namespace consist::tokenizer {

const char* const gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

/// Unicode's White_Space property, which is what Oniguruma's \s means; PCRE2's has U+180E on top.
constexpr const char* white_space = R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// Rewrites an expression in Oniguruma's Ruby syntax for PCRE2. What the two engines read differently is translated or refused;
/// only constructs that are known to mean the same pass.
class Translator {
 public:
  explicit Translator(const std::string& pattern) : pattern_(pattern) {}

  std::string translate() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        character(c);
      }
    }
    if (in_class_) refuse("has a set without its end");
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw DataError("the pre-tokenizer's expression " + why + ", which is not supported: " + pattern_);
  }
  bool follows(std::string_view text) const { return std::string_view(pattern_).substr(at_).starts_with(text); }
  void copy(std::size_t count) {
    out_.append(pattern_, at_, count);
    at_ += count;
  }

  void character(char c) {
    switch (c) {
      case '[':
        in_class_ = true;
        copy(follows("[^") ? 2 : 1);
        if (follows("]")) refuse("has a set that begins with ]");
        return;
      case '(':
        for (std::string_view group : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:"}) {
          if (follows(group)) return copy(group.size());
        }
        if (follows("(?") || follows("(*")) refuse("has a group of an unusual kind");
        return copy(1);
      case '^':
      case '$':
        refuse(std::string("uses ") + c);
      case '{': {
        const std::size_t end = pattern_.find('}', at_);
        const std::string_view inside =
            end == std::string::npos ? std::string_view{} : std::string_view(pattern_).substr(at_ + 1, end - at_ - 1);
        const bool plain =
            !inside.empty() && inside[0] != ',' && inside.find_first_not_of("0123456789,") == std::string_view::npos;
        if (!plain || (end + 1 < pattern_.size() && pattern_[end + 1] == '+')) refuse("has a brace that is no plain repetition");
        return copy(end + 1 - at_);
      }
      default:
        copy(1);
    }
  }

  void class_character(char c) {
    if (c == '[') refuse("has a set inside a set");
    if (follows("&&")) refuse("intersects sets");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("ends in a backslash");
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 's':
        out_ += in_class_ ? white_space : std::string("[") + white_space + "]";
        at_ += 2;
        return;
      case 'S':
        if (in_class_) refuse("has \\S inside a set");
        out_ += std::string("[^") + white_space + "]";
        at_ += 2;
        return;
      case 'p':
      case 'P': {  // general categories; scripts differ
        const std::size_t end = pattern_.find('}', at_);
        const std::string_view name =
            end == std::string::npos || pattern_[at_ + 2] != '{' ? "" : std::string_view(pattern_).substr(at_ + 3, end - at_ - 3);
        // The reference knows Unicode 16, Debian's PCRE2 10.42 Unicode 14: what came between is listed beside the property.
        const UnicodeClass* found = std::find_if(std::begin(unicode_classes), std::end(unicode_classes),
                                                 [&](const UnicodeClass& known) { return known.name == name; });
        if (found == std::end(unicode_classes)) refuse("has a property that is no general category");
        if (c == 'P' && in_class_) refuse("has \\P inside a set");
        const std::string inside =
            found->whole.empty() ? "\\p{" + std::string(name) + "}" + std::string(found->newer) : std::string(found->whole);
        out_ += in_class_ ? inside : (c == 'P' ? "[^" : "[") + inside + "]";
        at_ = end + 1;
        return;
      }
      case 'r':
      case 'n':
      case 't':
      case 'f':
        return copy(2);
      default:
        if (!std::ispunct(static_cast<unsigned char>(c))) refuse(std::string("uses \\") + c);
        copy(2);
    }
  }

  const std::string& pattern_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

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
  constexpr std::size_t most_bytes = 16'384;  // published ones have a few hundred
  if (pattern.size() > most_bytes) {
    throw DataError("the pre-tokenizer's expression has " + std::to_string(pattern.size()) + " bytes, more than the " +
                    std::to_string(most_bytes) + " that are read");
  }
  const std::string translated = Translator(pattern).translate();
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_UCP, &error,
                              &offset, nullptr);
  if (code_->code == nullptr)
    throw DataError("the pre-tokenizer's expression does not compile (" + message_of(error) + "): " + pattern);
  std::uint32_t empty = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty != 0) throw DataError("the pre-tokenizer's expression can match nothing, which is not supported: " + pattern);
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);  // an error only means that it runs interpreted
}

RegexSplit::~RegexSplit() = default;
RegexSplit::RegexSplit(RegexSplit&&) noexcept = default;
RegexSplit& RegexSplit::operator=(RegexSplit&&) noexcept = default;

// The library's own limit counts backtracking in a single match, not what is read, and starts anew with each. So the expression
// sees no more of the text at first than most matches need (PCRE2_PARTIAL_HARD reports that it wanted to read on), is allowed
// little backtracking, and what it takes beyond is counted over the whole text.
void RegexSplit::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  constexpr std::size_t first_window = 64;  // bytes behind the start
  constexpr std::uint32_t first_limit = 64;
  constexpr std::size_t window_growth = 2;
  constexpr std::uint32_t limit_growth = 8;
  const std::size_t most_work = 50'000'000 + 32 * text.size();  // steps of some 5 to 10 ns
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                  pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> settings(pcre2_match_context_create(nullptr),
                                                                                           pcre2_match_context_free);
  std::size_t done = 0, from = 0, work = 0, window = first_window;
  std::uint32_t limit = first_limit;
  while (from < text.size()) {
    std::size_t end = std::min(text.size(), from + window);
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) ++end;
    pcre2_set_match_limit(settings.get(), limit);
    const std::uint32_t options = PCRE2_NO_UTF_CHECK | (end < text.size() ? PCRE2_PARTIAL_HARD : 0);
    const int found =
        pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), end, from, options, match.get(), settings.get());
    if (found == PCRE2_ERROR_PARTIAL || found == PCRE2_ERROR_MATCHLIMIT) {
      work += found == PCRE2_ERROR_PARTIAL ? (window *= window_growth) : (limit *= limit_growth);
      if (work > most_work) {
        throw DataError("the pre-tokenizer's expression takes too long on the text: it was given up after " +
                        std::to_string(most_work) + " steps at byte " + std::to_string(from) + " of " +
                        std::to_string(text.size()));
      }
      continue;
    }
    if (found == PCRE2_ERROR_NOMATCH) {  // it begins nowhere before `end`
      from = end;
      continue;
    }
    if (found < 0) throw DataError("the pre-tokenizer's expression failed on the text: " + message_of(found));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    if (range[0] > done) pieces.push_back(text.substr(done, range[0] - done));
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    done = from = range[1];
    window = first_window;
    limit = first_limit;
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
}

namespace {

/// Nothing if a character stands for no byte.
std::optional<std::string> translate_token(std::string_view token) {
  static const std::unordered_map<char32_t, unsigned char> bytes = byte_characters();
  if (invalid_utf8(token) != std::string_view::npos) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < token.size();) {
    std::size_t length = 0;
    const char32_t point = read_utf8(token, i, length);
    const auto byte = bytes.find(point);
    if (byte == bytes.end()) return std::nullopt;
    out += static_cast<char>(byte->second);
    i += length;
  }
  return out;
}

}  // namespace

bool is_byte_level(std::string_view token) {
  return translate_token(token).has_value();
}

std::string bytes_of_token(std::string_view token) {
  std::optional<std::string> bytes = translate_token(token);
  if (!bytes)
    throw DataError("the token '" + std::string(token) +
                    "' has a character that stands for no byte; only byte-level vocabularies are supported");
  return *std::move(bytes);
}

}  // namespace consist::tokenizer
