// The tokenizer of a dataset that reads text: what the datasets' options `tokenizer` and `separator` choose.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datasets/tokenizer/tokenizer.h"

namespace consist::tokenizer {

struct TokenizerChoice {
  std::string dataset;          ///< the plugin, for messages: "text"
  std::string tokenizer;        ///< a tokenizer.json or a folder with one; empty or "shipped": the one that ships
  std::string separator;        ///< as separator_token() takes it
  std::int64_t vocabulary = 0;  ///< of the model
};

/// The tokenizer.json that is chosen, as ChosenTokenizer::file() says it, without reading it. Throws UsageError for a folder that
/// has none.
std::string tokenizer_file(const TokenizerChoice& choice);

/// Immutable; may be used from several threads.
class ChosenTokenizer {
 public:
  /// Throws UsageError, DataError or SystemError naming the file or the option.
  explicit ChosenTokenizer(const TokenizerChoice& choice);

  const Tokenizer& tokenizer() const noexcept { return tokenizer_; }
  const std::string& file() const noexcept { return file_; }
  std::optional<std::int32_t> separator() const noexcept { return separator_; }
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  /// Throws UsageError if the model lacks one of the ids.
  void check(std::span<const std::int32_t> ids) const;
  /// "the tokenizer that ships", or its file.
  std::string name() const;
  /// "<|endoftext|> behind each document", "without separators"
  std::string separator_text() const;

 private:
  void warn_of_vocabulary();

  TokenizerChoice choice_;
  std::string file_;
  Tokenizer tokenizer_;
  std::optional<std::int32_t> separator_;
  std::vector<std::string> warnings_;
};

}  // namespace consist::tokenizer
