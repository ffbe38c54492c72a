// Pairs of answers, one JSON object a line: {"prompt": [5, 17], "chosen": [3, 2], "rejected": [9, 2]}. A sequence holds prompt
// and chosen answer, then prompt and rejected answer; attention sees those of its own half alone. The order is that of the file.
#include <consist/dataset.h>
#include <consist/error.h>
#include <consist/plugin.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using namespace consist;

class Preferences final : public Dataset {
 public:
  explicit Preferences(const Options& options) : path_(options.text("file")) {
    if (path_.empty())
      throw UsageError("--my-preferences.file is not given; it names a file of lines with prompt, chosen and rejected");
  }

  void open(const DatasetRequest& request) override {
    std::ifstream file(path_);
    if (!file) throw SystemError("cannot open " + path_);
    std::size_t line = 0;
    for (std::string text; std::getline(file, text);) {
      ++line;
      const nlohmann::json pair = nlohmann::json::parse(text, nullptr, false);
      Sequence sequence;
      for (const char* answer : {"chosen", "rejected"}) {
        if (!pair.is_object() || !pair.contains("prompt") || !pair.contains(answer))
          throw DataError(path_ + ", line " + std::to_string(line) + ": there is no \"prompt\" or no \"" + answer + "\"");
        add(sequence, pair["prompt"], 0);
        add(sequence, pair[answer], answer[0] == 'c' ? 1.0F : -1.0F);
        sequence.ends.push_back(sequence.ids.size());
      }
      const auto length = static_cast<std::size_t>(request.sequence_length) + 1;
      if (sequence.ids.size() > length)
        throw DataError(path_ + ", line " + std::to_string(line) + " has " + std::to_string(sequence.ids.size()) +
                        " tokens, more than --sequence " + std::to_string(request.sequence_length) + " and one");
      for (const std::int32_t id : sequence.ids) {
        if (id < 0 || id >= request.vocabulary)
          throw DataError(path_ + ", line " + std::to_string(line) + ": the id " + std::to_string(id) +
                          " is outside of the vocabulary");
      }
      sequence.ids.resize(length, 0);
      sequence.prefers.resize(length, 0);
      sequences_.push_back(std::move(sequence));
    }
    if (sequences_.empty()) throw DataError(path_ + " is empty");
  }

  std::int64_t train_sequences() const override { return static_cast<std::int64_t>(sequences_.size()); }
  std::int64_t eval_sequences() const override { return train_sequences(); }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    std::copy_n(at(index).ids.begin(), tokens.size(), tokens.begin());
  }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override { read_train(index, tokens); }

  std::vector<Field> fields() const override { return {{"preference", DType::f32}, {"document_start", DType::i32}}; }
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    const Sequence& sequence = at(index);
    for (const FieldValues& field : values) {
      for (std::size_t t = 0; t + 1 < sequence.ids.size(); ++t) {
        std::size_t start = 0;
        for (const std::size_t end : sequence.ends) start = t >= end ? end : start;
        if (field.field.name == "document_start")
          static_cast<std::int32_t*>(field.data)[t] = static_cast<std::int32_t>(start);
        else
          static_cast<float*>(field.data)[t] = sequence.prefers[t + 1];  // the target is the next token
      }
    }
  }
  void read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    read_train_fields(index, values);
  }
  std::string describe() const override { return "my-preferences: " + std::to_string(sequences_.size()) + " pairs"; }

 private:
  struct Sequence {
    std::vector<std::int32_t> ids;
    std::vector<float> prefers;     ///< of each token as a target
    std::vector<std::size_t> ends;  ///< of the two halves
  };

  static void add(Sequence& sequence, const nlohmann::json& ids, float preference) {
    for (const auto& id : ids) {
      sequence.ids.push_back(id.get<std::int32_t>());
      sequence.prefers.push_back(preference);
    }
  }
  const Sequence& at(std::int64_t index) const { return sequences_[static_cast<std::size_t>(index) % sequences_.size()]; }

  std::string path_;
  std::vector<Sequence> sequences_;
};

}  // namespace

CONSIST_PLUGIN(dataset, consist::Dataset, Preferences, "my-preferences", "1.0.0", "pairs of a chosen and a rejected answer");
CONSIST_PLUGIN_OPTIONS({"file", consist::OptionKind::text, "", "the file of pairs"});
