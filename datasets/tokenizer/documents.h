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

/// The token that an option names: "none"; "auto": the end-of-text token, by the names that Qwen, Llama-3 and Llama-2 give it, if
/// there is one; or an added token's text. Throws UsageError, naming `option`, if the tokenizer has no such token.
std::optional<std::int32_t> separator_token(const Tokenizer& tokenizer, const std::string& name, const std::string& option);

}  // namespace consist::tokenizer
