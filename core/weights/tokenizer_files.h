// The tokenizer that lies in a model folder beside the weights.
#pragma once

#include <string>

#include "consist/export.h"

namespace consist {

/// folder/tokenizer.json, or empty if the folder has none.
CONSIST_API std::string tokenizer_of(const std::string& folder);

/// Gives the exported folder `to` the tokenizer that its model was trained with: `used`, a tokenizer.json, with what lies beside
/// it under the names of a tokenizer's files (tokenizer_config.json, vocab.json, ...); if it is empty, those of `model_folder`.
/// generation_config.json comes from `model_folder`. Either may be empty. Each file is copied whole or not at all, over one of
/// the same name. Throws DataError or SystemError naming the file.
CONSIST_API void export_tokenizer(const std::string& to, const std::string& model_folder, const std::string& used);

}  // namespace consist
