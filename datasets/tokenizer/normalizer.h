// What happens to text before it is cut and encoded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace consist::tokenizer {

/// One step of a normalizer.
struct Normalization {
  enum class Kind {
    nfc,      ///< Unicode's normalization form C
    prepend,  ///< `content` before a text that is not empty
    replace,  ///< every `pattern`, from left to right, by `content`
  };
  Kind kind = Kind::nfc;
  std::string pattern = {}, content = {};
};

/// `text`, valid UTF-8, after all steps in order.
std::string normalized(std::string_view text, const std::vector<Normalization>& steps);

/// Every `pattern` (not empty) of `text`, from left to right, by `content`.
std::string with_replaced(std::string_view text, std::string_view pattern, std::string_view content);

}  // namespace consist::tokenizer
