// Values of options that datasets of rows have in common.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

namespace consist::records {

/// The items of a list with commas between; of an empty one an empty item.
std::vector<std::string> split(const std::string& list);

/// A day such as 2024-07-26; nothing for an empty text. `option`: without the signs in front. Throws UsageError for another text.
std::optional<std::tm> day_of(const std::string& date, const std::string& option);

}  // namespace consist::records
