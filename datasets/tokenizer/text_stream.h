// Text of tokens that come one by one, as from a model that generates it.
#pragma once

#include <cstdint>
#include <string>

#include "datasets/tokenizer/tokenizer.h"

namespace consist::tokenizer {

/// The tokens' bytes as whole characters: those of a character that the next tokens complete are kept back. Special tokens are
/// left out. Bytes that are no UTF-8 become U+FFFD, one for each longest run that could have begun a character (as Unicode
/// recommends, and Python's decoder does). A space that the first token begins with stays: it divides the text from what stands
/// before it.
class TextStream {
 public:
  /// The tokenizer must outlive it.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// The text that is known to be whole with this token. Throws DataError for an id that does not exist.
  std::string push(std::int32_t id);
  /// Returns the rest: U+FFFD for a character that was not completed, or nothing.
  std::string finish();

 private:
  std::string take_whole(bool all);

  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace consist::tokenizer
