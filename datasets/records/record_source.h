// Source of a dataset's rows: the datasets `jsonl` and `parquet` read it in different ways and treat it alike.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace consist::records {

/// The rows of one file, in order. Not to be used by several threads at a time.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  /// Reads the next row into `record`, an object (whose keys are in the file's order) that has at least those of the wanted
  /// fields which the row has; false at the end. Throws DataError or SystemError that begins with place().
  virtual bool next(nlohmann::ordered_json& record) = 0;
  /// The place of the row that next() gave: "chats.jsonl, line 12".
  virtual std::string place() const = 0;
  /// The names of all fields of the row that next() gave.
  virtual std::vector<std::string> fields() const = 0;
  /// Bytes of the file that have been read.
  virtual std::int64_t bytes() const = 0;
};

/// Opens a file for rows of which the fields `wanted` are read.
using OpenRecords = std::function<std::unique_ptr<RecordSource>(const std::string& file, const std::vector<std::string>& wanted)>;

}  // namespace consist::records
