// Datasets of rows with a field of text or of messages: what `jsonl` and `parquet` have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consist/dataset.h"
#include "consist/options.h"
#include "datasets/packing/packed_stream.h"
#include "datasets/records/chat_writer.h"
#include "datasets/records/record_source.h"
#include "datasets/tokenizer/chosen_tokenizer.h"

namespace consist::records {

/// Documents are rows, packed as PackedStream does, and held in memory as token ids with what is known of each. Where a share of
/// the rows is kept for evaluation, training and evaluation are packed apart, so that no row stands in both.
class RecordDataset : public Dataset {
 public:
  /// `name`: the plugin's. From the options of CONSIST_RECORD_OPTIONS. Throws UsageError.
  RecordDataset(std::string name, const Options& options, OpenRecords open_records);

  void open(const DatasetRequest& request) override;
  std::int64_t train_sequences() const override { return stream_->train_sequences(); }
  std::int64_t eval_sequences() const override { return stream_->eval_sequences(); }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override { stream_->read_train(index, tokens); }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override { stream_->read_eval(index, tokens); }
  std::vector<Field> fields() const override;
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override;
  void read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const override;
  std::string describe() const override;
  std::string tokenizer() const override { return tokenizer::tokenizer_file({name_, tokenizer_choice_, separator_}); }
  std::vector<std::string> warnings() const override { return warnings_; }
  std::string chat_template() const override;

 private:
  /// Rows that were read from a list of files.
  struct Rows {
    std::vector<std::int32_t> tokens;
    std::vector<bool> learnt;             ///< by token: it counts as a target
    std::vector<std::int64_t> documents;  ///< where each begins
    std::int64_t files = 0, targets = 0;  ///< targets: those that are learnt
  };
  /// Counts that describe() states of the rows that --files names.
  struct Counts {
    std::int64_t files = 0, documents = 0, tokens = 0, targets = 0, kept = 0;  ///< kept: documents, for evaluation
  };
  Rows read(const std::string& files, const std::string& option) const;
  Rows take_share(Rows& rows) const;
  using Json = nlohmann::ordered_json;
  void add_row(const Json& record, const RecordSource& source, Rows& rows) const;
  void add_text(const Json& text, const std::string& place, Rows& rows) const;
  void add_chat(const Json& record, const std::string& field, const RecordSource& source, Rows& rows) const;
  std::vector<std::string> field_names() const;  ///< of which a row must have one
  std::vector<std::string> wanted_fields() const;
  std::vector<std::pair<std::string, Json>> variables_of(const Json& record, const std::string& place) const;
  void choose_template();
  bool learns(const std::string& role) const;
  bool has_mask() const { return apart_ || (is_chat_ && learns_ != "all"); }
  void write_fields(const Rows& rows, std::int64_t first, std::span<const FieldValues> values) const;

  std::string name_, files_, eval_files_, field_, template_, learns_, ignored_, date_, tokenizer_choice_, separator_;
  OpenRecords open_records_;
  bool is_chat_, apart_, divides_rows_;
  double eval_fraction_;
  // Since open():
  DatasetRequest request_;
  std::unique_ptr<tokenizer::ChosenTokenizer> tokenizer_;
  std::optional<ChatWriter> chat_;
  std::vector<std::string> warnings_;
  std::shared_ptr<Rows> train_, eval_;  // the same where the evaluation part is a share of the sequences, or there is none
  Counts counts_;
  std::optional<packing::PackedStream> stream_;
};

}  // namespace consist::records

/// Rows of a plugin's option table, for RecordDataset. `file_kind`: "JSON Lines (.jsonl, .jsonl.gz)".
#define CONSIST_RECORD_OPTIONS(file_kind)                                                                                        \
  {"files", consist::OptionKind::text, "", "files or folders of " file_kind ", commas between"},                                 \
      {"format", consist::OptionKind::choice, "text", "of a row: a text, or a conversation as a list of messages", "text|chat"}, \
      {"field", consist::OptionKind::text, "",                                                                                   \
       "of a row that is read; empty: text, or of conversations messages, else conversations"},                                  \
      {"template",                                                                                                               \
       consist::OptionKind::text,                                                                                                \
       "auto",                                                                                                                   \
       "how a conversation becomes text: auto, the chat template beside the tokenizer; " CONSIST_CHAT_TEMPLATES                  \
       "; or a file with one in Jinja",                                                                                          \
       "",                                                                                                                       \
       "format=chat"},                                                                                                           \
      {"ignore",                                                                                                                 \
       consist::OptionKind::text,                                                                                                \
       "tool_call_id,id",                                                                                                        \
       "keys of messages that the template need not read, commas between",                                                       \
       "",                                                                                                                       \
       "format=chat"},                                                                                                           \
      {"date", consist::OptionKind::text,                                                                                        \
       "",     "the day that strftime_now() of a template says, as 2024-07-26; empty: there is no such function",                \
       "",     "format=chat"},                                                                                                   \
      {"learn",     consist::OptionKind::text,                                                                                   \
       "assistant", "roles whose words are targets, commas between; all: every token of a conversation",                         \
       "",          "format=chat"},                                                                                              \
      {"documents", consist::OptionKind::choice, "joined",                                                                       \
       "rows that share a sequence; apart: attention sees a token's own row alone", "joined|apart"},                             \
      {"tokenizer", consist::OptionKind::text, "",                                                                               \
       "a tokenizer.json or a folder with one; empty: the one in the model's folder, or for a preset, as with shipped, the one " \
       "that "                                                                                                                   \
       "ships (4096 tokens)"},                                                                                                   \
      {"separator", consist::OptionKind::text, "auto",                                                                           \
       "added token behind each row, auto (end of text; of a conversation, whose template ends it, none) or none"},              \
      {"eval-fraction", consist::OptionKind::real,                                                                               \
       "0.05",          "share of the rows, at the end, kept for evaluation; at least as many as fill a sequence",               \
       "0..0.5",        "eval-files="},                                                                                          \
      {"eval-split",                                                                                                             \
       consist::OptionKind::choice,                                                                                              \
       "rows",                                                                                                                   \
       "what that share is of: whole rows, or sequences of rows that are packed, of which the one that is cut is in both parts", \
       "rows|sequences",                                                                                                         \
       "eval-files="},                                                                                                           \
  {                                                                                                                              \
    "eval-files", consist::OptionKind::text, "", "files for evaluation instead of a share"                                       \
  }
