// Normalizes text before it is cut and encoded.
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

/// Lengths of a text's beginnings after normalization, without normalizing each of them anew: asked for in ascending order
/// they take time linear in the text, as long as it has ASCII characters now and then and patterns are single characters.
class NormalizedLengths {
 public:
  /// `also`: a text that counts as one byte (a mark that stands for a space); empty: none. All must outlive the object.
  NormalizedLengths(std::string_view text, const std::vector<Normalization>& steps, std::string_view also);
  std::size_t of_first(std::size_t bytes);

 private:
  std::size_t measured(std::size_t begin, std::size_t end) const;

  std::string_view text_, also_;
  const std::vector<Normalization>& steps_;
  std::vector<Normalization> inner_;  // behind the text's beginning
  bool cuts_ = true;                  // what is normalized in parts is what is normalized whole
  std::size_t anchor_ = 0, base_ = 0;
};

/// Every `pattern` (not empty) of `text`, from left to right, by `content`.
std::string with_replaced(std::string_view text, std::string_view pattern, std::string_view content);

}  // namespace consist::tokenizer
