// Files of token ids, made by `consist tokenize` or by other programs; read where they lie.
#include "consist/dataset.h"

#include <cstdio>
#include <optional>

#include "consist/error.h"
#include "consist/plugin.h"
#include "datasets/packing/file_list.h"
#include "datasets/packing/packed_stream.h"
#include "datasets/packing/token_file.h"

namespace {

using namespace consist;
using namespace consist::packing;

class Tokens final : public Dataset {
 public:
  explicit Tokens(const Options& options)
      : files_(options.text("files")),
        eval_files_(options.text("eval-files")),
        format_(options.text("format")),
        eval_fraction_(options.real("eval-fraction")) {
    if (!(eval_fraction_ >= 0 && eval_fraction_ <= 0.5)) throw UsageError("--tokens.eval-fraction must be in 0..0.5");
  }

  void open(const DatasetRequest& request) override {
    if (files_.empty()) throw UsageError("--tokens.files is missing: files of tokens, which `consist tokenize` makes from text");
    const auto train = read(files_, "--tokens.files", request);
    files_read_ = static_cast<std::int64_t>(train->files().size());
    tokens_ = train->size();
    if (eval_files_.empty()) {
      stream_.emplace(train, request, eval_fraction_, files_);
    } else {
      stream_.emplace(train, read(eval_files_, "--tokens.eval-files", request), request, files_, eval_files_);
    }
  }

  std::int64_t train_sequences() const override { return stream_->train_sequences(); }
  std::int64_t eval_sequences() const override { return stream_->eval_sequences(); }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override { stream_->read_train(index, tokens); }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override { stream_->read_eval(index, tokens); }
  std::string describe() const override { return "tokens: " + count_of(files_read_, "file") + ", " + count_of(tokens_, "token"); }

 private:
  std::shared_ptr<TokenFiles> read(const std::string& files, const std::string& option, const DatasetRequest& request) const {
    const TokenFileFormat format = format_ == "u16"   ? TokenFileFormat::u16
                                   : format_ == "u32" ? TokenFileFormat::u32
                                                      : TokenFileFormat::header;
    std::vector<TokenFile> opened;
    for (const std::string& path : list_files(files, option)) {
      const TokenFile& file = opened.emplace_back(path, format);
      const TokenFileHeader& header = file.header();
      if (header.tokens > 0 && static_cast<std::int64_t>(header.largest) >= request.vocabulary) {
        throw DataError(path + " has ids up to " + std::to_string(header.largest) + ", but the model's vocabulary has " +
                        std::to_string(request.vocabulary) + "; tokenize the text with the model's own tokenizer");
      }
      if (header.tokenizer_sha256 != opened.front().header().tokenizer_sha256) {
        throw DataError(path + " was made with another tokenizer than " + opened.front().path());
      }
    }
    return std::make_shared<TokenFiles>(std::move(opened));
  }

  std::string files_, eval_files_, format_;
  double eval_fraction_;
  std::int64_t files_read_ = 0, tokens_ = 0;
  std::optional<PackedStream> stream_;
};

}  // namespace

CONSIST_PLUGIN(dataset, consist::Dataset, Tokens, "tokens", "1.0.0",
               "files of token ids, as `consist tokenize` writes them or bare");
CONSIST_PLUGIN_OPTIONS({"files", consist::OptionKind::text, "", "files or folders, commas between"},
                       {"format", consist::OptionKind::choice, "header",
                        "of the files: with Consist's header, or bare little-endian ids", "header|u16|u32"},
                       {"eval-fraction", consist::OptionKind::real, "0.05",
                        "share of the sequences, at the end, kept for evaluation", "", "eval-files="},
                       {"eval-files", consist::OptionKind::text, "", "files for evaluation instead of a share"});
