// --dataset: one dataset, or several of which a share each is trained on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "consist/export.h"
#include "core/config/run_config.h"

namespace consist {

/// One entry of --dataset: "text", "jsonl=0.3", "jsonl@chat=0.3".
struct DatasetChoice {
  std::string name;         ///< what its options are called by: "jsonl@chat"
  std::string plugin;       ///< "jsonl"
  std::int64_t weight = 1;  ///< sequences of it in each `period_of()` sequences
  bool operator==(const DatasetChoice&) const = default;
};

/// So many sequences at most until shares come out exactly.
inline constexpr std::int64_t most_period = 100'000;

/// "text", or "text=0.7+jsonl@chat=0.3": weights are numbers above 0, of which only the ratio counts, and come back as whole
/// numbers without a common divisor. Throws UsageError.
CONSIST_API std::vector<DatasetChoice> parse_datasets(const std::string& text);

/// The sum of the weights.
CONSIST_API std::int64_t period_of(const std::vector<DatasetChoice>& datasets);

/// The plugin that an owner of options is: "jsonl" for "jsonl@chat".
CONSIST_API std::string plugin_of(const std::string& owner);

/// The options of an owner: those of `jsonl@chat`, and where it has none, those of `jsonl`.
CONSIST_API std::map<std::string, std::string> options_of_owner(const RunConfig& config, const std::string& owner);

}  // namespace consist
