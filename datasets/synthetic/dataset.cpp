// Synthetic tokens with something to learn: a random walk over the vocabulary in which each token has a few likely successors.
#include "consist/dataset.h"

#include <algorithm>

#include "consist/error.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;

/// SplitMix64's output function (Steele, Lea & Flood, 2014).
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

class Synthetic final : public Dataset {
 public:
  explicit Synthetic(const Options& options)
      : successors_(options.integer("successors")), eval_(options.integer("eval-sequences")) {
    if (successors_ < 1) throw UsageError("--synthetic.successors must be at least 1");
    const std::string fields = options.text("fields");
    for (std::size_t first = 0; first < fields.size();) {
      const std::size_t end = std::min(fields.find(',', first), fields.size());
      add_field(fields.substr(first, end - first), fields);
      first = end + 1;
    }
    if (eval_ < 0) throw UsageError("--synthetic.eval-sequences must not be negative");
  }

  void open(const DatasetRequest& request) override {
    request_ = request;
    if (request.vocabulary < 1) throw UsageError("the model's vocabulary is empty");
  }
  std::int64_t train_sequences() const override { return std::int64_t{1} << 40; }
  std::int64_t eval_sequences() const override { return eval_; }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    walk(2 * static_cast<std::uint64_t>(index), tokens);
  }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override {
    walk(2 * static_cast<std::uint64_t>(index) + 1, tokens);
  }
  std::vector<Field> fields() const override { return fields_; }
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    make_fields(2 * static_cast<std::uint64_t>(index), values);
  }
  void read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    make_fields(2 * static_cast<std::uint64_t>(index) + 1, values);
  }
  std::string describe() const override {
    return "synthetic: random walk over " + std::to_string(request_.vocabulary) + " tokens with " + std::to_string(successors_) +
           " successors each";
  }

 private:
  /// "loss_mask", "document_start", or the name of another one with its dtype.
  void add_field(const std::string& text, const std::string& all) {
    const std::size_t colon = text.find(':');
    const std::string name = text.substr(0, colon), dtype = colon == std::string::npos ? "" : text.substr(colon + 1);
    const bool known = name == "loss_mask" || name == "document_start";
    const bool twice = std::any_of(fields_.begin(), fields_.end(), [&](const Field& field) { return field.name == name; });
    if (name.empty() || twice || (known ? !dtype.empty() : dtype != "i32" && dtype != "f32")) {
      throw UsageError(
          "--synthetic.fields is '" + all +
          "'; there are loss_mask, document_start and NAME:i32 or NAME:f32 for others, each once, with commas between them");
    }
    fields_.push_back({name, dtype == "f32" ? DType::f32 : DType::i32});
  }

  /// -1, 0 or 1 for each token.
  static void make_other(const FieldValues& field, std::uint64_t key, std::int64_t length) {
    for (std::int64_t t = 0; t < length; ++t) {
      const int value = static_cast<int>(mix(key ^ mix(static_cast<std::uint64_t>(t) * golden + 6)) % 3) - 1;
      if (field.field.dtype == DType::f32)
        static_cast<float*>(field.data)[t] = static_cast<float>(value);
      else
        static_cast<std::int32_t*>(field.data)[t] = value;
    }
  }

  /// Documents of 1 to 16 tokens; of each the first targets are not learnt, as those of a prompt.
  void make_fields(std::uint64_t stream, std::span<const FieldValues> values) const {
    const std::uint64_t key = mix(request_.seed * golden + 4) ^ mix(stream * golden + 5);
    for (const FieldValues& field : values) {
      if (field.field.name != "loss_mask" && field.field.name != "document_start") {
        make_other(field, key, request_.sequence_length);
        continue;
      }
      auto* out = static_cast<std::int32_t*>(field.data);
      for (std::int64_t start = 0, document = 0; start < request_.sequence_length; ++document) {
        const std::uint64_t choice = mix(key + static_cast<std::uint64_t>(document) * golden);
        const std::int64_t length = 1 + static_cast<std::int64_t>(choice % 16), end = std::min(start + length, request_.sequence_length);
        const std::int64_t prompt = static_cast<std::int64_t>(choice / 16) % length;
        for (std::int64_t t = start; t < end; ++t)
          out[t] = static_cast<std::int32_t>(field.field.name == "loss_mask" ? (t - start >= prompt ? 1 : 0) : start);
        start = end;
      }
    }
  }

  /// Sequence `stream`: the k-th successor of a token follows from the token alone, which one is taken from the stream.
  void walk(std::uint64_t stream, std::span<std::int32_t> tokens) const {
    const std::uint64_t key = mix(request_.seed * golden + 1) ^ mix(stream * golden + 2);
    const auto vocabulary = static_cast<std::uint64_t>(request_.vocabulary);
    std::uint64_t token = mix(key) % vocabulary;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(token);
      const std::uint64_t choice = mix(key + (i + 1) * golden) % static_cast<std::uint64_t>(successors_);
      token = mix(token * golden + choice + 3) % vocabulary;
    }
  }

  std::int64_t successors_, eval_;
  std::vector<Field> fields_;
  DatasetRequest request_;
};

}  // namespace

CONSIST_PLUGIN(dataset, consist::Dataset, Synthetic, "synthetic", "1.0.0",
               "endless made-up tokens with something to learn; no files");
CONSIST_PLUGIN_OPTIONS({"successors", consist::OptionKind::integer, "4",
                        "likely next tokens of each token; the best loss is their logarithm"},
                       {"eval-sequences", consist::OptionKind::integer, "64", "size of the evaluation part"},
                       {"fields", consist::OptionKind::text, "",
                        "made-up fields beside the tokens: loss_mask, document_start, or -1, 0 and 1 as NAME:i32 or NAME:f32"});
