// JSON Lines: one object a line, in a file as it is or compressed by gzip.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/records/record_source.h"

namespace consist::records {

/// The longest line that is read.
inline constexpr std::int64_t most_line_bytes = std::int64_t{64} << 20;

/// Empty lines are passed over. A file whose name ends in .gz is decompressed. Throws SystemError if it cannot be read; next()
/// throws DataError for a line that is no JSON object, naming line and column.
std::unique_ptr<RecordSource> open_json_lines(const std::string& file);

}  // namespace consist::records
