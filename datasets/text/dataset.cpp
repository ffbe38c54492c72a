// Text files, tokenized when the run starts and held in memory.
#include "consist/dataset.h"

#include <cstdio>
#include <memory>
#include <optional>

#include "consist/error.h"
#include "consist/plugin.h"
#include "datasets/packing/file_list.h"
#include "datasets/packing/packed_stream.h"
#include "datasets/tokenizer/chosen_tokenizer.h"
#include "datasets/tokenizer/documents.h"

namespace {

using namespace consist;
using namespace consist::packing;
using namespace consist::tokenizer;

class Text final : public Dataset {
 public:
  explicit Text(const Options& options)
      : files_(options.text("files")),
        choice_(options.text("tokenizer")),
        documents_(options.text("documents")),
        separator_(options.text("separator")),
        eval_files_(options.text("eval-files")),
        eval_fraction_(options.real("eval-fraction")) {
    if (!(eval_fraction_ >= 0 && eval_fraction_ <= 0.5)) throw UsageError("--text.eval-fraction must be in 0..0.5");
  }

  void open(const DatasetRequest& request) override {
    tokenizer_ = std::make_unique<ChosenTokenizer>(TokenizerChoice{"text", choice_, separator_, request.vocabulary});
    TextFiles text;
    text.documents = documents_ == "line" ? DocumentKind::line : DocumentKind::file;
    text.separator = tokenizer_->separator();
    auto read = [&](const std::string& files, const std::string& option, TextCounts& counts) {
      text.files = list_files(files, option);
      std::vector<std::int32_t> tokens;
      counts = tokenize_files(tokenizer_->tokenizer(), text,
                              [&](std::span<const std::int32_t> ids) { tokens.insert(tokens.end(), ids.begin(), ids.end()); });
      tokenizer_->check(tokens);
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
           tokenizer_->name() + ", " + tokenizer_->separator_text();
  }
  std::string tokenizer() const override { return tokenizer_file({"text", choice_, separator_}); }
  std::vector<std::string> warnings() const override { return tokenizer_->warnings(); }

 private:
  std::string files_, choice_, documents_, separator_, eval_files_;
  std::unique_ptr<ChosenTokenizer> tokenizer_;  // since open()
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
