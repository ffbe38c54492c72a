// The tokenizer that lies in a model folder beside the weights.
#pragma once

#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/files.h"

namespace consist {

/// folder/tokenizer.json, or empty if the folder has none.
CONSIST_API std::string tokenizer_of(const std::string& folder);

/// Copies of the tokenizer that a model was trained with, to go into the exported folder `to`: of `used`, a tokenizer.json, and
/// what lies beside it under the names of a tokenizer's files (tokenizer_config.json, vocab.json, ...); if it is empty, of
/// `model_folder`'s. `chat_template`, a program in Jinja, is written as chat_template.jinja, which goes before one in
/// tokenizer_config.json; if it is empty, the one that lies there is copied. generation_config.json comes from `model_folder`.
/// Either may be empty; files that lie in `to` already are left out. The copies are finished, for the caller to publish. Throws
/// DataError or SystemError naming the file.
CONSIST_API std::vector<AtomicFile> copy_tokenizer(const std::string& to, const std::string& model_folder,
                                                   const std::string& used, const std::string& chat_template);

}  // namespace consist
