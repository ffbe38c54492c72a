#include "datasets/records/json_lines.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"

namespace consist::records {
namespace {

constexpr std::int64_t block_bytes = 1 << 20;

/// The bytes of a file, one block after the other.
class Blocks {
 public:
  virtual ~Blocks() = default;
  /// Appends the next block; false at the end.
  virtual bool read(std::string& text) = 0;
  virtual std::int64_t bytes() const = 0;  ///< of the file, read so far
};

class PlainBlocks final : public Blocks {
 public:
  explicit PlainBlocks(const std::string& file) : file_(file) {}
  bool read(std::string& text) override {
    const std::int64_t count = std::min(block_bytes, file_.size() - at_);
    if (count <= 0) return false;
    const std::size_t before = text.size();
    text.resize(before + static_cast<std::size_t>(count));
    file_.read(at_, text.data() + before, static_cast<std::size_t>(count));
    at_ += count;
    return true;
  }
  std::int64_t bytes() const override { return at_; }

 private:
  InputFile file_;
  std::int64_t at_ = 0;
};

class GzipBlocks final : public Blocks {
 public:
  explicit GzipBlocks(const std::string& file) : path_(file) {
    const InputFile is_regular(file);  // throws where there is none, or no regular one
    file_ = ::gzopen(file.c_str(), "rbe");
    if (file_ == nullptr) throw SystemError("cannot open " + file + ": " + std::strerror(errno));
    ::gzbuffer(file_, 1 << 18);
    if (is_regular.size() > 0 && ::gzdirect(file_) != 0)
      throw DataError(file + " is not compressed by gzip, as its name says; rename it, or compress it");
  }
  ~GzipBlocks() override { ::gzclose(file_); }
  GzipBlocks(const GzipBlocks&) = delete;
  GzipBlocks& operator=(const GzipBlocks&) = delete;

  bool read(std::string& text) override {
    const std::size_t before = text.size();
    text.resize(before + static_cast<std::size_t>(block_bytes));
    const int count = ::gzread(file_, text.data() + before, static_cast<unsigned>(block_bytes));
    text.resize(before + static_cast<std::size_t>(std::max(count, 0)));
    int problem = Z_OK;
    const char* const why = ::gzerror(file_, &problem);
    if (problem == Z_BUF_ERROR || (count < block_bytes && ::gzeof(file_) == 0 && count >= 0))
      throw DataError(path_ + " is cut off: its compressed data end too early");
    if (problem == Z_ERRNO) throw SystemError("cannot read " + path_ + ": " + std::strerror(errno));
    if (count < 0 || problem != Z_OK) throw DataError(path_ + " is damaged: " + why);
    return count > 0;
  }
  std::int64_t bytes() const override { return std::max<std::int64_t>(::gzoffset(file_), 0); }

 private:
  std::string path_;
  gzFile file_ = nullptr;
};

class JsonLines final : public RecordSource {
 public:
  explicit JsonLines(const std::string& file) : path_(file) {
    if (file.ends_with(".gz")) {
      blocks_ = std::make_unique<GzipBlocks>(file);
    } else {
      blocks_ = std::make_unique<PlainBlocks>(file);
    }
  }

  bool next(nlohmann::ordered_json& record) override {
    for (std::string_view line; next_line(line);) {
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      record = parsed(line);
      if (!record.is_object())
        throw DataError(place() + " is no JSON object but " + shown(record, 60) +
                        "; each line must be one, such as {\"text\": \"...\"}");
      fields_.clear();
      for (const auto& [name, value] : record.items()) fields_.push_back(name);
      return true;
    }
    return false;
  }
  std::string place() const override { return path_ + ", line " + std::to_string(line_); }
  std::vector<std::string> fields() const override { return fields_; }
  std::int64_t bytes() const override { return blocks_->bytes(); }

 private:
  /// Valid until the next call.
  bool next_line(std::string_view& line) {
    for (std::size_t search = begin_;;) {
      const std::size_t end = text_.find('\n', search);
      if (end != std::string::npos || (at_end_ && begin_ < text_.size())) {
        line = std::string_view(text_).substr(begin_, std::min(end, text_.size()) - begin_);
        begin_ = std::min(end, text_.size() - 1) + 1;
        ++line_;
        return true;
      }
      if (at_end_) return false;
      text_.erase(0, begin_);
      begin_ = 0;
      search = text_.size();
      if (static_cast<std::int64_t>(text_.size()) > most_line_bytes) {
        ++line_;
        throw DataError(place() + " has more than " + std::to_string(most_line_bytes >> 20) +
                        " MiB; is this JSON Lines, one object a line?");
      }
      at_end_ = !blocks_->read(text_);
    }
  }

  nlohmann::ordered_json parsed(std::string_view line) const {
    try {
      parse_json(line, place(), {.most_bytes = most_line_bytes + block_bytes});  // which says what is wrong, and keeps no order
      return nlohmann::ordered_json::parse(line);
    } catch (const DataError& error) {  // which takes the line for a file of its own
      std::string text = error.what();
      constexpr std::string_view of_file = "parse error at line 1, column ";
      if (const std::size_t at = text.find(of_file); at != std::string::npos) text.replace(at, of_file.size(), "column ");
      throw DataError(text);
    }
  }

  std::string path_;
  std::unique_ptr<Blocks> blocks_;
  std::string text_;  // read, from the line at begin_ on
  std::size_t begin_ = 0;
  bool at_end_ = false;
  std::int64_t line_ = 0;  // that next() gave, from 1
  std::vector<std::string> fields_;
};

}  // namespace

std::unique_ptr<RecordSource> open_json_lines(const std::string& file) {
  return std::make_unique<JsonLines>(file);
}

}  // namespace consist::records
