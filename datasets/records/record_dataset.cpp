#include "datasets/records/record_dataset.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "datasets/packing/file_list.h"
#include "datasets/records/encoded_chat.h"
#include "datasets/records/option_values.h"
#include "datasets/records/read_rows.h"

namespace consist::records {

using packing::count_of;

namespace {

/// Tokens that somebody else holds.
class SharedTokens final : public packing::TokenSource {
 public:
  SharedTokens(std::shared_ptr<const void> owner, const std::vector<std::int32_t>& tokens)
      : owner_(std::move(owner)), tokens_(tokens) {}
  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t first, std::span<std::int32_t> tokens) const override {
    std::copy_n(tokens_.begin() + first, tokens.size(), tokens.begin());
  }

 private:
  std::shared_ptr<const void> owner_;
  const std::vector<std::int32_t>& tokens_;
};

/// Variables of the template that a row may have beside its messages.
constexpr const char* row_variables[] = {"tools", "documents"};
/// An object of further ones, as others read it.
constexpr const char* row_arguments = "chat_template_kwargs";
/// Fields of a row that may hold parts of a conversation, although no template sees them.
constexpr const char* not_read[] = {"functions", "system"};

}  // namespace

RecordDataset::RecordDataset(std::string name, const Options& options, OpenRecords open_records)
    : name_(std::move(name)),
      files_(options.text("files")),
      eval_files_(options.text("eval-files")),
      field_(options.text("field")),
      template_(options.text("template")),
      learns_(options.text("learn")),
      ignored_(options.text("ignore")),
      date_(options.text("date")),
      tokenizer_choice_(options.text("tokenizer")),
      separator_(options.text("separator")),
      open_records_(std::move(open_records)),
      is_chat_(options.text("format") == "chat"),
      apart_(options.text("documents") == "apart"),
      divides_rows_(options.text("eval-split") == "rows"),
      eval_fraction_(options.real("eval-fraction")) {
  const std::vector<std::string> roles = split(learns_);
  if (std::any_of(roles.begin(), roles.end(), [](const std::string& role) { return role.empty(); }) ||
      (roles.size() > 1 && learns("all")))
    throw UsageError("--" + name_ + ".learn is '" + learns_ +
                     "'; it is all, or roles with a comma between: assistant or user,assistant");
  if (is_chat_ && separator_ == "auto") separator_ = "none";
}

bool RecordDataset::learns(const std::string& role) const {
  return ("," + learns_ + ",").find("," + role + ",") != std::string::npos;
}

std::vector<std::string> RecordDataset::field_names() const {
  if (!field_.empty()) return {field_};
  if (is_chat_) return {"messages", "conversations"};
  return {"text"};
}

std::vector<std::string> RecordDataset::wanted_fields() const {
  std::vector<std::string> wanted = field_names();
  if (!is_chat_) return wanted;
  wanted.insert(wanted.end(), std::begin(row_variables), std::end(row_variables));
  wanted.insert(wanted.end(), std::begin(not_read), std::end(not_read));
  wanted.emplace_back(row_arguments);
  return wanted;
}

std::string RecordDataset::chat_template() const {
  return is_chat_ ? choose_chat_template(template_, tokenizer(), name_ + ".template").program : "";
}

void RecordDataset::choose_template() {
  const std::string option = name_ + ".template";
  chat_.emplace(choose_chat_template(template_, tokenizer_->file(), option), LearntRoles{learns_ == "all", split(learns_)},
                split(ignored_), day_of(date_, name_ + ".date"));
  std::string lacking;
  for (const std::string& token : split(chat_->chat().tokens)) {
    if (!token.empty() && !tokenizer_->tokenizer().added_token(token)) lacking += (lacking.empty() ? "" : ", ") + token;
  }
  if (!lacking.empty())
    warnings_.push_back("--" + option + " " + chat_->chat().name + " writes " + lacking + ", which " + tokenizer_->name() +
                        " does not have as tokens of their own: they become several tokens each");
}

void RecordDataset::open(const DatasetRequest& request) {
  if (files_.empty()) throw UsageError("--" + name_ + ".files is missing: the files to read");
  request_ = request;
  tokenizer_ = std::make_unique<tokenizer::ChosenTokenizer>(
      tokenizer::TokenizerChoice{name_, tokenizer_choice_, separator_, request.vocabulary});
  warnings_ = tokenizer_->warnings();
  if (is_chat_) choose_template();
  train_ = std::make_shared<Rows>(read(files_, "--" + name_ + ".files"));
  counts_ = {train_->files, std::ssize(train_->documents), std::ssize(train_->tokens), train_->targets};
  const auto source = [](const std::shared_ptr<Rows>& rows) { return std::make_shared<SharedTokens>(rows, rows->tokens); };
  if (!eval_files_.empty()) {
    eval_ = std::make_shared<Rows>(read(eval_files_, "--" + name_ + ".eval-files"));
    stream_.emplace(source(train_), source(eval_), request, files_, eval_files_);
  } else if (divides_rows_ && eval_fraction_ > 0) {
    eval_ = std::make_shared<Rows>(take_share(*train_));
    counts_.kept = std::ssize(eval_->documents);
    const std::string rows =
        count_of(counts_.kept, "row") + " that " + (counts_.kept == 1 ? "is" : "are") + " kept for evaluation";
    stream_.emplace(source(train_), source(eval_), request, files_ + " without the " + rows, "the " + rows + " of " + files_);
  } else {
    eval_ = train_;
    stream_.emplace(source(train_), request, eval_fraction_, files_);
  }
}

/// Takes the rows at the end out that are kept for evaluation.
RecordDataset::Rows RecordDataset::take_share(Rows& rows) const {
  const std::int64_t all = std::ssize(rows.documents), tokens = std::ssize(rows.tokens);
  const std::int64_t needed = request_.sequence_length + 1;  // with the target of the last id
  auto kept = std::max<std::int64_t>(1, std::llround(eval_fraction_ * static_cast<double>(all)));
  const auto begin = [&] { return rows.documents[static_cast<std::size_t>(all - kept)]; };
  while (kept < all && tokens - begin() < needed) ++kept;
  if (kept >= all) {
    throw DataError(files_ + " has " + count_of(all, "row") + " with " + count_of(tokens, "token") +
                    ", of which none are left to train on beside those that are kept for evaluation, a sequence of " +
                    std::to_string(request_.sequence_length) + " at least: give more text or a shorter --sequence, files by --" +
                    name_ + ".eval-files, --" + name_ + ".eval-fraction 0 for no evaluation, or --" + name_ +
                    ".eval-split sequences to divide a row");
  }
  const std::int64_t first = begin();
  const auto tail_of = [&](auto& values, std::int64_t at) {
    std::remove_reference_t<decltype(values)> tail(values.begin() + at, values.end());
    values.resize(static_cast<std::size_t>(at));
    return tail;
  };
  Rows share;
  share.tokens = tail_of(rows.tokens, first);
  if (has_mask()) share.learnt = tail_of(rows.learnt, first);
  share.documents = tail_of(rows.documents, all - kept);
  for (std::int64_t& document : share.documents) document -= first;
  share.targets = std::count(share.learnt.begin(), share.learnt.end(), true);
  rows.targets -= share.targets;
  return share;
}

RecordDataset::Rows RecordDataset::read(const std::string& files, const std::string& option) const {
  const std::vector<std::string> paths = packing::list_files(files, option);
  const std::vector<std::string> wanted = wanted_fields();
  Rows rows;
  rows.files = std::ssize(paths);
  read_rows(
      paths, [&](const std::string& path) { return open_records_(path, wanted); },
      [&](const Json& record, const RecordSource& source) {
        add_row(record, source, rows);
        return std::ssize(rows.tokens);
      });
  tokenizer_->check(rows.tokens);
  if (has_mask() && rows.targets == 0 && !rows.tokens.empty())
    throw DataError(files + " has " + count_of(static_cast<long long>(rows.documents.size()), "conversation") +
                    " and in none of them words of " + learns_ + ", so that there is nothing to learn; --" + name_ +
                    ".learn names the roles whose words are targets");
  return rows;
}

void RecordDataset::add_row(const Json& record, const RecordSource& source, Rows& rows) const {
  const std::vector<std::string> names = field_names();
  const auto name = std::find_if(names.begin(), names.end(), [&](const std::string& n) { return record.contains(n); });
  if (name == names.end()) {
    std::string there;
    bool has_messages = false;
    for (const std::string& field : source.fields()) {
      there += (there.empty() ? "" : ", ") + in_quotes(field, 60);
      has_messages = has_messages || field == "messages" || field == "conversations";
    }
    throw DataError(source.place() + " has no field " + in_quotes(names.front(), 60) +
                    (names.size() > 1 ? " or " + in_quotes(names[1]) : "") + "; it has " + (there.empty() ? "none" : there) +
                    ". Name the one to read with --" + name_ + ".field" +
                    (!is_chat_ && has_messages ? ", or read conversations with --" + name_ + ".format chat" : ""));
  }
  const std::string place = source.place() + ", field " + in_quotes(*name, 60);
  const std::size_t before = rows.tokens.size();
  if (is_chat_) {
    add_chat(record, *name, source, rows);
  } else {
    add_text(record[*name], place, rows);
  }
  if (rows.tokens.size() == before) return;  // an empty text is no document
  rows.documents.push_back(static_cast<std::int64_t>(before));
  if (const auto separator = tokenizer_->separator()) {
    rows.tokens.push_back(*separator);
    if (has_mask()) rows.learnt.push_back(learns_ == "all" || !is_chat_);
  }
  if (!has_mask()) return;
  if (apart_) rows.learnt[before] = false;  // nothing that attention sees foretells it
  rows.targets += std::count(rows.learnt.begin() + static_cast<std::ptrdiff_t>(before), rows.learnt.end(), true);
}

void RecordDataset::add_text(const Json& text, const std::string& place, Rows& rows) const {
  if (!text.is_string())
    throw DataError(place + " is no text but " + shown(text, 60) +
                    (text.is_array() ? "; lists of messages are read with --" + name_ + ".format chat" : ""));
  const std::string& value = text.get_ref<const std::string&>();
  if (value.empty()) return;
  std::vector<std::int32_t> ids;
  try {
    ids = tokenizer_->tokenizer().encode(value);
  } catch (const DataError& error) {  // an expression of the tokenizer that does not come to an end
    throw DataError(place + ": " + error.what());
  }
  rows.tokens.insert(rows.tokens.end(), ids.begin(), ids.end());
  if (has_mask()) rows.learnt.insert(rows.learnt.end(), ids.size(), true);
}

void RecordDataset::add_chat(const Json& record, const std::string& field, const RecordSource& source, Rows& rows) const {
  const std::string place = source.place() + ", field " + in_quotes(field, 60);
  const tokenizer::MarkedIds chat = encoded_chat(
      *chat_, tokenizer_->tokenizer(), {read_messages(record[field], place), variables_of(record, source.place())}, place);
  rows.tokens.insert(rows.tokens.end(), chat.ids.begin(), chat.ids.end());
  if (has_mask()) rows.learnt.insert(rows.learnt.end(), chat.marked.begin(), chat.marked.end());
}

std::vector<std::pair<std::string, nlohmann::ordered_json>> RecordDataset::variables_of(const Json& record,
                                                                                        const std::string& place) const {
  const auto given = [&](const char* name) { return record.contains(name) && !record[name].is_null(); };
  for (const char* name : not_read) {
    if (given(name) && !record[name].empty())
      throw DataError(place + " has " + in_quotes(name) +
                      " beside its messages, which no chat template reads; tools are read from \"tools\", " +
                      "and what the system says from a message of that role");
  }
  std::vector<std::pair<std::string, Json>> variables;
  const auto list_of = [&](const char* name) {  // which some files have as a text
    Json list = record[name];
    if (list.is_string()) {
      const std::string text = list.get<std::string>();
      parse_json(text, place + ", field " + in_quotes(name));
      list = Json::parse(text);
    }
    if (!list.is_array() && !list.is_null())
      throw DataError(place + ", field " + in_quotes(name) + " is no list but " + shown(list, 60));
    return list;
  };
  for (const char* name : row_variables) {
    if (!given(name)) continue;
    if (Json list = list_of(name); !list.is_null() && !list.empty()) variables.emplace_back(name, std::move(list));
  }
  if (!given(row_arguments)) return variables;
  if (!record[row_arguments].is_object())
    throw DataError(place + ", field " + in_quotes(row_arguments) + " is no object but " + shown(record[row_arguments], 60));
  for (const auto& [name, value] : record[row_arguments].items()) {
    if (name == "messages" || name == "add_generation_prompt")
      throw DataError(place + ", field " + in_quotes(row_arguments) + " has " + in_quotes(name) +
                      ", which is not the row's to set");
    if (!value.is_null()) variables.emplace_back(name, value);
  }
  return variables;
}

std::vector<Field> RecordDataset::fields() const {
  std::vector<Field> fields;
  if (has_mask()) fields.push_back({"loss_mask", DType::i32});
  if (apart_) fields.push_back({"document_start", DType::i32});
  return fields;
}

void RecordDataset::write_fields(const Rows& rows, std::int64_t first, std::span<const FieldValues> values) const {
  const std::int64_t length = request_.sequence_length;
  for (const FieldValues& field : values) {
    auto* const out = static_cast<std::int32_t*>(field.data);
    if (field.field.name == "loss_mask") {
      for (std::int64_t t = 0; t < length; ++t) out[t] = rows.learnt[static_cast<std::size_t>(first + t + 1)] ? 1 : 0;
      continue;
    }
    auto next = std::upper_bound(rows.documents.begin(), rows.documents.end(), first);  // the first document behind `first`
    std::int64_t start = 0;
    for (std::int64_t t = 0; t < length; ++t) {
      for (; next != rows.documents.end() && *next <= first + t; ++next) start = *next - first;
      out[t] = static_cast<std::int32_t>(start);
    }
  }
}

void RecordDataset::read_train_fields(std::int64_t index, std::span<const FieldValues> values) const {
  write_fields(*train_, stream_->train_position(index), values);
}

void RecordDataset::read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const {
  write_fields(*eval_, stream_->eval_position(index), values);
}

std::string RecordDataset::describe() const {
  std::string text =
      name_ + ": " + count_of(counts_.files, "file") + ", " + count_of(counts_.documents, is_chat_ ? "conversation" : "document");
  if (counts_.kept > 0) text += " (the last " + std::to_string(counts_.kept) + " for evaluation)";
  text += ", " + count_of(counts_.tokens, "token");
  if (has_mask()) text += ", " + std::to_string(counts_.targets) + " of them targets";
  text += " by " + tokenizer_->name();
  if (is_chat_) text += std::string(" with the chat template ") + chat_->chat().name;
  if (!is_chat_ || tokenizer_->separator()) text += ", " + tokenizer_->separator_text();
  return text + (apart_ ? ", attention within each" : "");
}

}  // namespace consist::records
