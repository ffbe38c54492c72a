// From text files to tokens: what the dataset `text` and `consist tokenize` share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datasets/tokenizer/tokenizer.h"

namespace consist::tokenizer {

enum class DocumentKind {
  file,  ///< a file is one document
  line,  ///< a line is one, without its end (LF or CR LF); empty lines are none
};

struct TextFiles {
  std::vector<std::string> files;
  DocumentKind documents = DocumentKind::file;
  std::optional<std::int32_t> separator;  ///< token behind every document
};

struct TextCounts {
  std::int64_t files = 0, documents = 0, bytes = 0, tokens = 0;
};

/// Encodes the documents of all files in order and hands each one's tokens (the tokenizer's special tokens and the separator
/// included) to `sink`. Logs progress every few seconds. Throws SystemError for files that cannot be read and DataError for
/// invalid UTF-8, naming file and offset.
TextCounts tokenize_files(const Tokenizer& tokenizer, const TextFiles& text,
                          const std::function<void(std::span<const std::int32_t>)>& sink);

/// The token that an option names: "none"; "auto": the end-of-text token; or an added token's text. Throws UsageError, naming
/// `option`, if the tokenizer has no such token; DataError for a file beside the tokenizer that is damaged.
///
/// The end-of-text token is the added token <|endoftext|> or <|end_of_text|>; else what the files beside `tokenizer_json` say:
/// eos_token of tokenizer_config.json and special_tokens_map.json, eos_token_id of generation_config.json and config.json, the
/// first that the tokenizer has; else </s>. Of these files' tokens the names come first because chat models declare the end of a
/// turn, which is not the end of a text.
std::optional<std::int32_t> separator_token(const Tokenizer& tokenizer, const std::string& tokenizer_json,
                                            const std::string& name, const std::string& option);

/// The warning that documents are not told apart, because --`option` auto found no end-of-text token.
std::string no_separator_warning(const std::string& tokenizer_json, const std::string& option);

}  // namespace consist::tokenizer
