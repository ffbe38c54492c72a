// Text files, tokenized when the run starts and held in memory.
#include "consist/dataset.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "consist/error.h"
#include "consist/plugin.h"
#include "datasets/packing/file_list.h"
#include "datasets/packing/packed_stream.h"
#include "datasets/tokenizer/documents.h"

namespace {

using namespace consist;
using namespace consist::packing;
using namespace consist::tokenizer;

class Text final : public Dataset {
 public:
  explicit Text(const Options& options)
      : files_(options.text("files")),
        tokenizer_(options.text("tokenizer")),
        documents_(options.text("documents")),
        separator_(options.text("separator")),
        eval_files_(options.text("eval-files")),
        eval_fraction_(options.real("eval-fraction")) {
    if (!(eval_fraction_ >= 0 && eval_fraction_ <= 0.5)) throw UsageError("--text.eval-fraction must be in 0..0.5");
  }

  void open(const DatasetRequest& request) override {
    const bool ships = tokenizer_.empty() || tokenizer_ == "shipped";
    tokenizer_file_ = ships ? shipped_path("text/tokenizer.json") : tokenizer_;
    if (std::error_code ignored; std::filesystem::is_directory(tokenizer_file_, ignored)) {
      tokenizer_file_ += "/tokenizer.json";
      if (!std::filesystem::exists(tokenizer_file_, ignored)) {
        throw UsageError("--text.tokenizer " + tokenizer_ +
                         " is a folder without a tokenizer.json; name one that has it, or the file");
      }
    }
    const Tokenizer tokenizer = Tokenizer::from_file(tokenizer_file_);
    TextFiles text;
    text.documents = documents_ == "line" ? DocumentKind::line : DocumentKind::file;
    text.separator = separator_token(tokenizer, tokenizer_file_, separator_, "text.separator");
    if (text.separator) separator_text_ = tokenizer.text_of(*text.separator);
    if (!text.separator && separator_ == "auto") warnings_.push_back(no_separator_warning(tokenizer_file_, "text.separator"));
    warn_of_vocabulary(tokenizer.vocabulary_size(), request.vocabulary);
    auto read = [&](const std::string& files, const std::string& option, TextCounts& counts) {
      text.files = list_files(files, option);
      std::vector<std::int32_t> tokens;
      counts = tokenize_files(tokenizer, text,
                              [&](std::span<const std::int32_t> ids) { tokens.insert(tokens.end(), ids.begin(), ids.end()); });
      check_vocabulary(tokens, tokenizer, request);
      return std::make_shared<TokensInMemory>(std::move(tokens));
    };
    const std::string files = files_.empty() ? shipped_path("text/corpus") : files_;
    const auto train = read(files, "--text.files", counts_);
    if (eval_files_.empty()) {
      stream_.emplace(train, request, eval_fraction_, "the text of " + files);
    } else {
      TextCounts counts;
      stream_.emplace(train, read(eval_files_, "--text.eval-files", counts), request, "the text of " + files,
                      "the text of " + eval_files_);
    }
  }

  std::int64_t train_sequences() const override { return stream_->train_sequences(); }
  std::int64_t eval_sequences() const override { return stream_->eval_sequences(); }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override { stream_->read_train(index, tokens); }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override { stream_->read_eval(index, tokens); }

  std::string describe() const override {
    char sizes[96];
    std::snprintf(sizes, sizeof sizes, ", %.2f MB, %lld tokens", static_cast<double>(counts_.bytes) / 1e6,
                  static_cast<long long>(counts_.tokens));
    return "text: " + count_of(counts_.files, "file") + ", " + count_of(counts_.documents, "document") + sizes + " by " +
           (tokenizer_.empty() || tokenizer_ == "shipped" ? "the tokenizer that ships" : tokenizer_file_) +
           (separator_text_.empty() ? ", without separators" : ", " + separator_text_ + " behind each document");
  }
  std::string tokenizer() const override { return tokenizer_file_; }
  std::vector<std::string> warnings() const override { return warnings_; }

 private:
  /// A model may have more rows than its tokenizer has tokens: published ones round up to a multiple of some 64 to 1024, or by
  /// up to 2%. Fewer rows are legal as long as no id is beyond them (check_vocabulary).
  void warn_of_vocabulary(std::int64_t tokens, std::int64_t vocabulary) {
    constexpr std::int64_t multiple = 1024;
    const std::int64_t padded = std::max((tokens + multiple - 1) / multiple * multiple, tokens + tokens / 50);
    if (vocabulary >= tokens && vocabulary <= padded) return;
    const std::string sizes = "the model's vocabulary has " + std::to_string(vocabulary) + " tokens, the tokenizer " +
                              (tokenizer_.empty() || tokenizer_ == "shipped" ? "that ships" : tokenizer_file_) + " has " +
                              std::to_string(tokens);
    warnings_.push_back(vocabulary < tokens ? sizes + ": text with one of those beyond would be refused"
                                            : sizes + ": is it the model's own? The other rows see no data");
  }
  static void check_vocabulary(const std::vector<std::int32_t>& tokens, const Tokenizer& tokenizer,
                               const DatasetRequest& request) {
    const auto largest = std::max_element(tokens.begin(), tokens.end());
    if (largest == tokens.end() || *largest < request.vocabulary) return;
    throw UsageError("the model's vocabulary has " + std::to_string(request.vocabulary) +
                     " tokens, but the tokenizer gives ids up to " + std::to_string(*largest) + " (it has " +
                     std::to_string(tokenizer.vocabulary_size()) + "); choose the model's own tokenizer with --text.tokenizer");
  }

  std::string files_, tokenizer_, documents_, separator_, eval_files_;
  std::string tokenizer_file_, separator_text_;  // since open()
  std::vector<std::string> warnings_;
  double eval_fraction_;
  TextCounts counts_;
  std::optional<PackedStream> stream_;
};

}  // namespace

CONSIST_PLUGIN(dataset, consist::Dataset, Text, "text", "1.0.0",
               "text files through a Hugging Face tokenizer.json; a small corpus ships with it");
CONSIST_PLUGIN_OPTIONS(
    {"files", consist::OptionKind::text, "", "files or folders of UTF-8 text, commas between; empty: the corpus that ships"},
    {"tokenizer", consist::OptionKind::text, "",
     "a tokenizer.json or a folder with one; empty: the one in the model's folder, or for a preset, as with shipped, the one "
     "that ships (4096 tokens)"},
    {"documents", consist::OptionKind::choice, "file", "what makes a document", "file|line"},
    {"separator", consist::OptionKind::text, "auto", "added token behind each document, auto (end of text) or none"},
    {"eval-fraction", consist::OptionKind::real, "0.05", "share of the sequences, at the end, kept for evaluation", "",
     "eval-files="},
    {"eval-files", consist::OptionKind::text, "", "files for evaluation instead of a share"});
