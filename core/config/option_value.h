// Checks the value of an option: one check for the options of a run and those of plugins, wherever a value comes from.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/options.h"

namespace consist {

/// The value as it is stored: flags as "true" and "false", integers and bytes in decimal. `said` is how messages name the option:
/// "--steps", or "run.toml, line 3: steps". Throws UsageError: "<said> is '<value>'; it must be <legal>".
CONSIST_API std::string legal_value(const OptionSpec& spec, std::string_view value, const std::string& said);

/// Describes the legal values in words: "a whole number of 64 bits, at least 1", "one of a, b".
CONSIST_API std::string legal_text(const OptionSpec& spec);

/// "a|b|c" at its bars.
CONSIST_API std::vector<std::string> choices_of(const OptionSpec& spec);

/// OptionSpec::tunable at its bars, the default first; none of an option that is not searched. Throws UsageError for a value that
/// is not legal or stands there twice, and where the default is missing: a bug in the plugin. `said` names the option.
CONSIST_API std::vector<std::string> tunable_values(const OptionSpec& spec, const std::string& said);

/// The value of option `name` of a plugin in a run: what is `given`, else its default, as it is stored; empty if the table has no
/// such option.
CONSIST_API std::string value_of(std::span<const OptionSpec> table, const std::map<std::string, std::string>& given,
                                 std::string_view name);

/// OptionSpec::needs: the option of the same plugin that must have one of these values.
struct OptionNeed {
  std::string option;  ///< empty: none
  std::vector<std::string> values;
  CONSIST_API bool is_met_by(std::string_view value) const;
};
CONSIST_API OptionNeed need_of(const OptionSpec& spec);

/// True if the kind is integer, real or bytes.
CONSIST_API bool is_number(OptionKind kind) noexcept;

}  // namespace consist
