// Reads all rows of files, with progress messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "datasets/records/record_source.h"

namespace consist::records {

/// Called with each row of `paths`, in order; returns the tokens that were made so far.
using OnRow = std::function<std::int64_t(const nlohmann::ordered_json& record, const RecordSource& source)>;

/// Throws what `open`, the sources and `on_row` throw.
void read_rows(const std::vector<std::string>& paths,
               const std::function<std::unique_ptr<RecordSource>(const std::string&)>& open, const OnRow& on_row);

}  // namespace consist::records
