// Patterns of parameters' names, with * and ? as in a shell, as options take them (--freeze, --optimizer-rules).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Parses patterns separated by commas; "" is none. Throws UsageError that begins with `option`, such as "--freeze", for an empty
/// one.
CONSIST_API std::vector<std::string> parse_patterns(const std::string& option, const std::string& text);
/// The option's value again.
CONSIST_API std::string patterns_text(const std::vector<std::string>& patterns);

/// True if one of the patterns matches the name.
CONSIST_API bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

/// Throws UsageError that says which names there are for a pattern that matches no parameter of the program.
CONSIST_API void require_matches(const Program& program, const std::string& option, const std::vector<std::string>& patterns);

}  // namespace consist
