// The rows of a Parquet file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/records/record_source.h"

namespace consist::records {

/// Reads the columns `wanted` alone, as far as the file has them, in batches: a file may be larger than the memory. Throws
/// SystemError if it cannot be read, DataError if it is no Parquet file or is damaged.
std::unique_ptr<RecordSource> open_parquet(const std::string& file, const std::vector<std::string>& wanted);

}  // namespace consist::records
