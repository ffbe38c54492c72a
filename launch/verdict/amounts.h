// Percentages and durations on the command line.
#pragma once

#include <string>

namespace consist::launch {

/// "2%" as 0.02. Throws UsageError for what is no percentage, or does not lie strictly between `low` and `high` (fractions).
/// `option` is its name without dashes.
double percent_of(const std::string& option, const std::string& text, double low = 0, double high = 1);

/// "90s", "10min", "2h" in seconds. Throws UsageError for what is no duration with its unit, or is not positive.
double seconds_of(const std::string& option, const std::string& text);

}  // namespace consist::launch
