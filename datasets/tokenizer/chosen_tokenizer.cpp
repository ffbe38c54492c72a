#include "datasets/tokenizer/chosen_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "consist/error.h"
#include "datasets/packing/file_list.h"
#include "datasets/tokenizer/documents.h"

namespace consist::tokenizer {
namespace {

bool ships(const TokenizerChoice& choice) {
  return choice.tokenizer.empty() || choice.tokenizer == "shipped";
}

}  // namespace

std::string tokenizer_file(const TokenizerChoice& choice) {
  std::string file = ships(choice) ? packing::shipped_path("text/tokenizer.json") : choice.tokenizer;
  if (std::error_code ignored; std::filesystem::is_directory(file, ignored)) {
    file += "/tokenizer.json";
    if (!std::filesystem::exists(file, ignored)) {
      throw UsageError("--" + choice.dataset + ".tokenizer " + choice.tokenizer +
                       " is a folder without a tokenizer.json; name one that has it, or the file");
    }
  }
  return file;
}

ChosenTokenizer::ChosenTokenizer(const TokenizerChoice& choice)
    : choice_(choice),
      file_(tokenizer_file(choice)),
      tokenizer_(Tokenizer::from_file(file_)),
      separator_(separator_token(tokenizer_, file_, choice.separator, choice.dataset + ".separator")) {
  if (!separator_ && choice.separator == "auto") warnings_.push_back(no_separator_warning(file_, choice.dataset + ".separator"));
  warn_of_vocabulary();
}

/// A model may have more rows than its tokenizer has tokens: published ones round up to a multiple of some 64 to 1024, or by
/// up to 2%. Fewer rows are legal as long as no id is beyond them (check).
void ChosenTokenizer::warn_of_vocabulary() {
  constexpr std::int64_t multiple = 1024;
  const std::int64_t tokens = tokenizer_.vocabulary_size();
  const std::int64_t padded = std::max((tokens + multiple - 1) / multiple * multiple, tokens + tokens / 50);
  if (choice_.vocabulary >= tokens && choice_.vocabulary <= padded) return;
  const std::string sizes = "the model's vocabulary has " + std::to_string(choice_.vocabulary) + " tokens, the tokenizer " +
                            (ships(choice_) ? "that ships" : file_) + " has " + std::to_string(tokens);
  warnings_.push_back(choice_.vocabulary < tokens ? sizes + ": text with one of those beyond would be refused"
                                                  : sizes + ": is it the model's own? The other rows see no data");
}

void ChosenTokenizer::check(std::span<const std::int32_t> ids) const {
  const auto largest = std::max_element(ids.begin(), ids.end());
  if (largest == ids.end() || *largest < choice_.vocabulary) return;
  throw UsageError("the model's vocabulary has " + std::to_string(choice_.vocabulary) +
                   " tokens, but the tokenizer gives ids up to " + std::to_string(*largest) + " (it has " +
                   std::to_string(tokenizer_.vocabulary_size()) + "); choose the model's own tokenizer with --" +
                   choice_.dataset + ".tokenizer");
}

std::string ChosenTokenizer::name() const {
  return ships(choice_) ? "the tokenizer that ships" : file_;
}

std::string ChosenTokenizer::separator_text() const {
  return separator_ ? tokenizer_.text_of(*separator_) + " behind each document" : "without separators";
}

}  // namespace consist::tokenizer
