#include "datasets/parquet/parquet_rows.h"

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/files.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::records {
namespace {

using json = nlohmann::ordered_json;

/// A file by its positions, as everywhere here: one that shrinks is an error, where a mapping would end the process.
class PositionedFile final : public arrow::io::RandomAccessFile {
 public:
  explicit PositionedFile(const std::string& path) : file_(path) {}
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return at_; }
  arrow::Status Seek(std::int64_t position) override {
    at_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> GetSize() override { return file_.size(); }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes, void* out) override {
    const std::int64_t count = std::clamp<std::int64_t>(file_.size() - position, 0, bytes);
    try {
      file_.read(position, out, static_cast<std::size_t>(count));
    } catch (const std::exception& error) {
      problem_ = std::current_exception();
      return arrow::Status::IOError(error.what());
    }
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(std::unique_ptr<arrow::ResizableBuffer> buffer, arrow::AllocateResizableBuffer(bytes));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t count, ReadAt(position, bytes, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(count));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }
  arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const std::int64_t count, ReadAt(at_, bytes, out));
    at_ += count;
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, ReadAt(at_, bytes));
    at_ += buffer->size();
    return buffer;
  }
  std::int64_t size() const { return file_.size(); }
  /// The exception of the last reading that failed: Arrow says IOError of damaged contents, too.
  std::exception_ptr problem() const { return problem_; }

 private:
  InputFile file_;
  std::exception_ptr problem_;
  std::int64_t at_ = 0;
  bool closed_ = false;
};

class ParquetRows final : public RecordSource {
 public:
  ParquetRows(const std::string& path, const std::vector<std::string>& wanted)
      : path_(path), file_(std::make_shared<PositionedFile>(path)) {
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file_));
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(1024);
    properties.set_use_threads(false);
    check(builder.properties(properties)->Build(&reader_));
    std::shared_ptr<arrow::Schema> schema;
    check(reader_->GetSchema(&schema));
    names_ = schema->field_names();
    std::vector<int> columns;
    for (const parquet::arrow::SchemaField& field : reader_->manifest().schema_fields) {
      if (std::find(wanted.begin(), wanted.end(), field.field->name()) != wanted.end()) add_leaves(field, columns);
    }
    std::vector<int> groups(static_cast<std::size_t>(reader_->num_row_groups()));
    for (std::size_t group = 0; group < groups.size(); ++group) groups[group] = static_cast<int>(group);
    has_rows_ = reader_->parquet_reader()->metadata()->num_rows() > 0;
    if (columns.empty()) return;  // next() gives a row without them, upon which the fields that are there are named
    auto batches = reader_->GetRecordBatchReader(groups, columns);
    check(batches.status());
    batches_ = std::move(*batches);
  }

  bool next(json& record) override {
    if (batches_ == nullptr) {
      record = json::object();
      ++row_;
      return has_rows_;
    }
    while (batch_ == nullptr || in_batch_ == batch_->num_rows()) {
      check(batches_->ReadNext(&batch_));
      if (batch_ == nullptr) return false;
      check(batch_->ValidateFull());
      in_batch_ = 0;
    }
    ++row_;
    record = json::object();
    for (int column = 0; column < batch_->num_columns(); ++column)
      record[batch_->column_name(column)] = value_of(*batch_->column(column), in_batch_);
    ++in_batch_;
    return true;
  }
  std::string place() const override { return path_ + ", row " + std::to_string(row_); }
  std::vector<std::string> fields() const override { return names_; }
  std::int64_t bytes() const override {  // as far as rows tell it
    const std::int64_t rows = reader_->parquet_reader()->metadata()->num_rows();
    return rows == 0 ? file_->size()
                     : static_cast<std::int64_t>(static_cast<double>(file_->size()) * static_cast<double>(row_) /
                                                 static_cast<double>(rows));
  }

 private:
  static void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& columns) {
    if (field.is_leaf()) columns.push_back(field.column_index);
    for (const parquet::arrow::SchemaField& child : field.children) add_leaves(child, columns);
  }

  void check(const arrow::Status& status) const {
    if (status.ok()) return;
    if (file_->problem()) std::rethrow_exception(file_->problem());
    const std::string text =
        path_ + " cannot be read as Parquet" + (row_ > 0 ? " behind row " + std::to_string(row_) : "") + ": " + status.message();
    throw DataError(text);
  }

  json list_of(const arrow::Array& values, std::int64_t begin, std::int64_t end) const {
    json list = json::array();
    for (std::int64_t at = begin; at < end; ++at) list.push_back(value_of(values, at));
    return list;
  }

  json text_of(std::string_view text) const {
    if (const std::size_t bad = tokenizer::invalid_utf8(text); bad != std::string_view::npos)
      throw DataError(place() + " has a text that is not valid UTF-8 at byte " + std::to_string(bad));
    return std::string(text);
  }

  /// Texts, lists and structures as JSON has them; of other values, what they look like.
  json value_of(const arrow::Array& array, std::int64_t row) const {
    if (array.IsNull(row)) return nullptr;
    switch (array.type_id()) {
      case arrow::Type::STRING:
        return text_of(static_cast<const arrow::StringArray&>(array).GetView(row));
      case arrow::Type::LARGE_STRING:
        return text_of(static_cast<const arrow::LargeStringArray&>(array).GetView(row));
      case arrow::Type::STRING_VIEW:
        return text_of(static_cast<const arrow::StringViewArray&>(array).GetView(row));
      case arrow::Type::DICTIONARY: {
        const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
        return value_of(*coded.dictionary(), coded.GetValueIndex(row));
      }
      case arrow::Type::LIST: {
        const auto& list = static_cast<const arrow::ListArray&>(array);
        return list_of(*list.values(), list.value_offset(row), list.value_offset(row + 1));
      }
      case arrow::Type::LARGE_LIST: {
        const auto& list = static_cast<const arrow::LargeListArray&>(array);
        return list_of(*list.values(), list.value_offset(row), list.value_offset(row + 1));
      }
      case arrow::Type::STRUCT: {
        const auto& structure = static_cast<const arrow::StructArray&>(array);
        json object = json::object();
        for (int field = 0; field < structure.num_fields(); ++field)
          object[structure.struct_type()->field(field)->name()] = value_of(*structure.field(field), row);
        return object;
      }
      case arrow::Type::INT64:
        return static_cast<const arrow::Int64Array&>(array).Value(row);
      case arrow::Type::DOUBLE:
        return static_cast<const arrow::DoubleArray&>(array).Value(row);
      case arrow::Type::BOOL:
        return static_cast<const arrow::BooleanArray&>(array).Value(row);
      default: {
        const auto scalar = array.GetScalar(row);
        check(scalar.status());
        return json{{array.type()->ToString(), (*scalar)->ToString()}};
      }
    }
  }

  std::string path_;
  std::shared_ptr<PositionedFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<std::string> names_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;  // null where the file has none of the columns
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t in_batch_ = 0, row_ = 0;
  bool has_rows_ = false;
};

}  // namespace

std::unique_ptr<RecordSource> open_parquet(const std::string& file, const std::vector<std::string>& wanted) {
  try {
    return std::make_unique<ParquetRows>(file, wanted);
  } catch (const parquet::ParquetException& error) {
    throw DataError(file + " cannot be read as Parquet: " + error.what());
  }
}

}  // namespace consist::records
