// The tokenizer that lies in a model folder beside the weights.
#pragma once

#include <string>

#include "consist/export.h"

namespace consist {

/// folder/tokenizer.json, or empty if the folder has none.
CONSIST_API std::string tokenizer_of(const std::string& folder);

/// Copies the files that Hugging Face's tokenizers consist of (tokenizer.json, tokenizer_config.json, vocab.json, ...), those of
/// them that `from` has, each whole or not at all, over files of these names in `to`. Throws DataError or SystemError naming the
/// file.
CONSIST_API void copy_tokenizer(const std::string& from, const std::string& to);

}  // namespace consist
