// The option --optimizer-rules: 'PATTERN,...:KEY=VALUE,...', several separated by semicolons.
#pragma once

#include <string>
#include <vector>

#include "consist/export.h"
#include "core/passes/optimizer_uses.h"

namespace consist {

/// Parses the option's value; "" is no rule. Keys: lr-factor, weight-decay, optimizer. Throws UsageError that names what is wrong.
CONSIST_API std::vector<OptimizerRule> parse_optimizer_rules(const std::string& text);
/// The option's value again.
CONSIST_API std::string text_of(const std::vector<OptimizerRule>& rules);

}  // namespace consist
