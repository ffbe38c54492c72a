// Examples of token ids with loss masks, one JSON object a line: {"ids": [5, 17, 2], "mask": [0, 1, 1]}. A mask says for each id
// whether it is to be learnt (an answer is, its prompt is not). Examples are packed into sequences; attention sees those of its
// own example alone.
#include <consist/dataset.h>
#include <consist/error.h>
#include <consist/plugin.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace consist;

class MaskedIds final : public Dataset {
 public:
  explicit MaskedIds(const Options& options) : path_(options.text("file")), eval_every_(options.integer("eval-every")) {
    if (path_.empty())
      throw UsageError("--masked-ids.file is not given; it names a file of lines such as {\"ids\": [5, 17], \"mask\": [0, 1]}");
    if (eval_every_ < 0) throw UsageError("--masked-ids.eval-every must not be negative");
  }

  void open(const DatasetRequest& request) override {
    request_ = request;
    std::ifstream file(path_);
    if (!file) throw SystemError("cannot open " + path_);
    std::vector<Token> tokens;
    std::int32_t example = 0;
    for (std::string line; std::getline(file, line); ++example) add(line, example, tokens);
    const std::size_t length = static_cast<std::size_t>(request.sequence_length) + 1;
    for (std::size_t first = 0; first + length <= tokens.size(); first += length - 1) {
      const bool evaluates = eval_every_ > 0 && (first / (length - 1) + 1) % static_cast<std::size_t>(eval_every_) == 0;
      (evaluates ? eval_ : train_)
          .emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                        tokens.begin() + static_cast<std::ptrdiff_t>(first + length));
    }
    examples_ = example;
    if (train_.empty())
      throw DataError(path_ + " has " + std::to_string(tokens.size()) + " tokens, too few for a sequence of " +
                      std::to_string(request.sequence_length));
  }
  std::int64_t train_sequences() const override { return static_cast<std::int64_t>(train_.size()); }
  std::int64_t eval_sequences() const override { return static_cast<std::int64_t>(eval_.size()); }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override { read(of_stream(index), tokens); }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override {
    read(eval_[static_cast<std::size_t>(index)], tokens);
  }

  std::vector<Field> fields() const override { return {{"loss_mask", DType::i32}, {"document_start", DType::i32}}; }
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    read_fields(of_stream(index), values);
  }
  void read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    read_fields(eval_[static_cast<std::size_t>(index)], values);
  }
  std::string describe() const override {
    return "masked-ids: " + std::to_string(examples_) + " examples, " + std::to_string(train_.size()) + " sequences";
  }

 private:
  struct Token {
    std::int32_t id, learnt, example;
  };
  using Sequence = std::vector<Token>;

  [[noreturn]] void refuse(std::int32_t example, const std::string& why) const {
    throw DataError(path_ + ", line " + std::to_string(example + 1) + ": " + why);
  }
  /// The numbers of the list behind "key".
  std::vector<std::int32_t> list(const std::string& line, const char* key, std::int32_t example) const {
    const std::size_t at = line.find('"' + std::string(key) + '"'), begin = line.find('[', at), end = line.find(']', begin);
    if (at == std::string::npos || end == std::string::npos) refuse(example, "there is no list \"" + std::string(key) + "\"");
    std::vector<std::int32_t> numbers;
    for (const char *c = line.data() + begin + 1, *last = line.data() + end; c < last;) {
      if (*c == ' ' || *c == ',') {
        ++c;
        continue;
      }
      std::int32_t number = 0;
      const auto [next, error] = std::from_chars(c, last, number);
      if (error != std::errc()) refuse(example, "\"" + std::string(key) + "\" holds what is no number");
      numbers.push_back(number);
      c = next;
    }
    return numbers;
  }
  void add(const std::string& line, std::int32_t example, std::vector<Token>& tokens) const {
    const std::vector<std::int32_t> ids = list(line, "ids", example), mask = list(line, "mask", example);
    if (ids.size() != mask.size())
      refuse(example, std::to_string(ids.size()) + " ids have a mask of " + std::to_string(mask.size()));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= request_.vocabulary)
        refuse(example,
               "the id " + std::to_string(ids[i]) + " is outside of the vocabulary of " + std::to_string(request_.vocabulary));
      tokens.push_back({ids[i], mask[i], example});
    }
  }

  /// Each epoch in an order of its own: a stride that has no divisor in common with the number of sequences.
  const Sequence& of_stream(std::int64_t index) const {
    const auto count = static_cast<std::uint64_t>(train_.size()), epoch = static_cast<std::uint64_t>(index) / count;
    std::uint64_t stride = 1 + (request_.seed + epoch) % count;
    const auto divides = [](std::uint64_t a, std::uint64_t b) {
      while (b != 0) a = std::exchange(b, a % b);
      return a;
    };
    while (divides(stride, count) != 1) ++stride;
    return train_[(static_cast<std::uint64_t>(index) % count * stride + epoch) % count];
  }
  static void read(const Sequence& sequence, std::span<std::int32_t> tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = sequence[i].id;
  }
  void read_fields(const Sequence& sequence, std::span<const FieldValues> values) const {
    for (const FieldValues& field : values) {
      auto* out = static_cast<std::int32_t*>(field.data);
      std::int32_t start = 0;
      for (std::size_t t = 0; t + 1 < sequence.size(); ++t) {
        if (t > 0 && sequence[t].example != sequence[t - 1].example) start = static_cast<std::int32_t>(t);
        // The target is the next token: the first of another example cannot be learnt from this one.
        const bool learnt = sequence[t + 1].learnt != 0 && sequence[t + 1].example == sequence[t].example;
        out[t] = field.field.name == "loss_mask" ? (learnt ? 1 : 0) : start;
      }
    }
  }

  std::string path_;
  std::int64_t eval_every_;
  DatasetRequest request_;
  std::vector<Sequence> train_, eval_;
  std::int64_t examples_ = 0;
};

}  // namespace

CONSIST_PLUGIN(dataset, consist::Dataset, MaskedIds, "masked-ids", "1.0.0", "token ids with loss masks, one JSON object a line");
CONSIST_PLUGIN_OPTIONS({"file", consist::OptionKind::text, "", "the file of examples"},
                       {"eval-every", consist::OptionKind::integer, "10",
                        "every so many-th sequence is for evaluation; 0: none"});
