// Facts of a run on which defaults and tunable values of plugins' options depend.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/options.h"

namespace consist {

struct RunFacts {
  int stages = 1;           ///< ranks along axes of stages
  std::int64_t layers = 0;  ///< of the model; 0: not known
};

/// OptionSpec::fallback, or, in a run with stages, the value that OptionSpec::tunable marks: "1 beside stages".
CONSIST_API std::string default_of(const OptionSpec& spec, const RunFacts& facts);

/// tunable_values() in such a run: its default first, `divisors(layers)` as the numbers above 1 that divide the layers and leave each
/// rank of a pipeline a layer for each. Throws as that.
CONSIST_API std::vector<std::string> tunable_values(const OptionSpec& spec, const std::string& said, const RunFacts& facts);

/// value_of() in such a run.
CONSIST_API std::string value_of(std::span<const OptionSpec> table, const std::map<std::string, std::string>& given,
                                 std::string_view name, const RunFacts& facts);

/// Defaults of such a run that differ from OptionSpec::fallback, by option; not those of options that are `given`.
CONSIST_API std::map<std::string, std::string> defaults_by_facts(std::span<const OptionSpec> table,
                                                                 const std::map<std::string, std::string>& given,
                                                                 const RunFacts& facts);

}  // namespace consist
