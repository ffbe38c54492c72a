// Pairs of conversations, one preferred: a sequence holds both, and a field says of each target in which one it stands.
#include "consist/dataset.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/plugin.h"
#include "consist/text.h"
#include "datasets/packing/file_list.h"
#include "datasets/packing/permutation.h"
#include "datasets/records/encoded_chat.h"
#include "datasets/records/json_lines.h"
#include "datasets/records/option_values.h"
#include "datasets/records/read_rows.h"
#include "datasets/tokenizer/chosen_tokenizer.h"

namespace {

using namespace consist;
using Json = nlohmann::ordered_json;

class Preferences final : public Dataset {
 public:
  explicit Preferences(const Options& options)
      : files_(options.text("files")),
        template_(options.text("template")),
        ignored_(options.text("ignore")),
        date_(options.text("date")),
        tokenizer_choice_(options.text("tokenizer")),
        skips_long_(options.text("long") == "skip"),
        eval_fraction_(options.real("eval-fraction")) {}

  void open(const DatasetRequest& request) override {
    if (files_.empty()) throw UsageError("--preferences.files is missing: the files to read");
    request_ = request;
    tokenizer_ = std::make_unique<tokenizer::ChosenTokenizer>(
        tokenizer::TokenizerChoice{"preferences", tokenizer_choice_, "none", request.vocabulary});
    warnings_ = tokenizer_->warnings();
    writer_.emplace(records::choose_chat_template(template_, tokenizer_->file(), "preferences.template"),
                    records::LearntRoles{false, {"assistant"}}, records::split(ignored_),
                    records::day_of(date_, "preferences.date"));
    read_files();
    const auto all = std::ssize(pairs_);
    eval_ = eval_fraction_ > 0 ? std::max<std::int64_t>(1, std::llround(eval_fraction_ * static_cast<double>(all))) : 0;
    if (all - eval_ < 1)
      throw DataError(files_ + " has " + packing::count_of(all, "pair") +
                      " that can be read here, of which none are left to train on" +
                      (eval_ > 0 ? " beside " + std::to_string(eval_) + " for evaluation" : ""));
  }

  std::int64_t train_sequences() const override { return std::ssize(pairs_) - eval_; }
  std::int64_t eval_sequences() const override { return eval_; }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override { write(of_stream(index), tokens); }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override { write(of_evaluation(index), tokens); }
  std::vector<Field> fields() const override { return {{"preference", DType::f32}, {"document_start", DType::i32}}; }
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    write_fields(of_stream(index), values);
  }
  void read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    write_fields(of_evaluation(index), values);
  }

  std::string describe() const override {
    return "preferences: " + packing::count_of(std::ssize(pairs_), "pair") +
           (eval_ > 0 ? " (the last " + std::to_string(eval_) + " for evaluation)" : "") + ", " +
           packing::count_of(tokens_, "token") + " by " + tokenizer_->name() + " with the chat template " + writer_->chat().name;
  }
  std::string tokenizer() const override { return tokenizer::tokenizer_file({"preferences", tokenizer_choice_, "none"}); }
  std::string chat_template() const override {
    return records::choose_chat_template(template_, tokenizer(), "preferences.template").program;
  }
  std::vector<std::string> warnings() const override { return warnings_; }

 private:
  struct Pair {
    std::vector<std::int32_t> ids;  ///< of the chosen conversation, then of the rejected one
    std::vector<bool> answers;      ///< by id: a word of the assistant
    std::int64_t rejected = 0;      ///< where that begins
  };

  void read_files() {
    std::int64_t skipped = 0;
    const auto open_file = [](const std::string& path) { return records::open_json_lines(path); };
    records::read_rows(packing::list_files(files_, "--preferences.files"), open_file,
                       [&](const Json& record, const records::RecordSource& source) {
                         if (!add(record, source.place())) ++skipped;
                         return tokens_;
                       });
    if (skipped > 0)
      warnings_.push_back(packing::count_of(skipped, "pair") + " of " + std::to_string(skipped + std::ssize(pairs_)) + " in " +
                          files_ + " did not fit a sequence of " + std::to_string(request_.sequence_length) +
                          " tokens and were left out (--preferences.long skip)");
  }

  /// False for a pair that is left out.
  bool add(const Json& record, const std::string& place) {
    if (record.contains("tools") && !record["tools"].is_null() && !record["tools"].empty())
      throw DataError(place + " has \"tools\", which pairs are not written with; leave the row out");
    Pair pair;
    append(record, "chosen", place, pair);
    pair.rejected = std::ssize(pair.ids);
    append(record, "rejected", place, pair);
    tokenizer_->check(pair.ids);
    if (std::ssize(pair.ids) > request_.sequence_length + 1) {
      if (skips_long_) return false;
      throw DataError(place + ": the pair has " + std::to_string(pair.ids.size()) + " tokens, more than --sequence " +
                      std::to_string(request_.sequence_length) +
                      " and one; choose a longer sequence, or leave long pairs out with --preferences.long skip");
    }
    tokens_ += std::ssize(pair.ids);
    pairs_.push_back(std::move(pair));
    return true;
  }

  void append(const Json& record, const char* field, const std::string& place, Pair& pair) const {
    const std::string where = place + ", field " + in_quotes(field);
    if (!record.contains(field)) throw DataError(place + " has no field " + in_quotes(field));
    Json messages = record[field];
    if (!messages.is_array()) throw DataError(where + " is no list of messages but " + shown(messages, 60));
    if (record.contains("prompt") && record["prompt"].is_array()) {
      Json whole = record["prompt"];
      whole.insert(whole.end(), messages.begin(), messages.end());
      messages = std::move(whole);
    }
    const tokenizer::MarkedIds chat =
        records::encoded_chat(*writer_, tokenizer_->tokenizer(), {records::read_messages(messages, where), {}}, where);
    if (std::find(chat.marked.begin(), chat.marked.end(), true) == chat.marked.end())
      throw DataError(where + " has no words of the assistant, which are compared");
    pair.ids.insert(pair.ids.end(), chat.ids.begin(), chat.ids.end());
    pair.answers.insert(pair.answers.end(), chat.marked.begin(), chat.marked.end());
  }

  const Pair& of_stream(std::int64_t index) const {
    return pairs_[static_cast<std::size_t>(packing::place_in_stream(index, train_sequences(), request_.seed))];
  }
  const Pair& of_evaluation(std::int64_t index) const { return pairs_[static_cast<std::size_t>(train_sequences() + index)]; }

  static void write(const Pair& pair, std::span<std::int32_t> tokens) {
    const auto end = std::copy(pair.ids.begin(), pair.ids.end(), tokens.begin());
    std::fill(end, tokens.end(), 0);
  }

  void write_fields(const Pair& pair, std::span<const FieldValues> values) const {
    const auto end = std::ssize(pair.ids);
    for (const FieldValues& field : values) {
      for (std::int64_t t = 0; t < request_.sequence_length; ++t) {
        const std::int64_t start = t < pair.rejected ? 0 : t < end ? pair.rejected : end;
        if (field.field.name == "document_start") {
          static_cast<std::int32_t*>(field.data)[t] = static_cast<std::int32_t>(start);
          continue;
        }
        const std::int64_t target = t + 1;
        // The first word of a conversation is foretold by nothing that attention sees.
        const bool counts = target < end && target != pair.rejected && pair.answers[static_cast<std::size_t>(target)];
        static_cast<float*>(field.data)[t] = !counts ? 0.0F : target < pair.rejected ? 1.0F : -1.0F;
      }
    }
  }

  std::string files_, template_, ignored_, date_, tokenizer_choice_;
  bool skips_long_;
  double eval_fraction_;
  // Since open():
  DatasetRequest request_;
  std::unique_ptr<tokenizer::ChosenTokenizer> tokenizer_;
  std::optional<records::ChatWriter> writer_;
  std::vector<Pair> pairs_;
  std::vector<std::string> warnings_;
  std::int64_t eval_ = 0, tokens_ = 0;
};

}  // namespace

CONSIST_PLUGIN(dataset, consist::Dataset, Preferences, "preferences", "1.0.0",
               "pairs of a chosen and a rejected conversation, for losses that compare them");
CONSIST_PLUGIN_OPTIONS(
    {"files", consist::OptionKind::text, "", "files or folders of JSON Lines (.jsonl, .jsonl.gz), commas between"},
    {"template", consist::OptionKind::text, "auto",
     "how a conversation becomes text: auto, the chat template beside the tokenizer; " CONSIST_CHAT_TEMPLATES
     "; or a file with one in Jinja"},
    {"ignore", consist::OptionKind::text, "tool_call_id,id", "keys of messages that the template need not read, commas between"},
    {"date", consist::OptionKind::text, "",
     "the day that strftime_now() of a template says, as 2024-07-26; empty: there is no such function"},
    {"tokenizer", consist::OptionKind::text, "",
     "a tokenizer.json or a folder with one; empty: the one in the model's folder, or for a preset the one that ships"},
    {"long", consist::OptionKind::choice, "refuse", "pairs that do not fit a sequence", "refuse|skip"},
    {"eval-fraction", consist::OptionKind::real, "0.05", "share of the pairs, at the end, kept for evaluation", "0..0.5"});
