// Layers of a model as options name them: "4-11" or "4".
#pragma once

#include <string>
#include <utility>

namespace consist {

/// The first and the last layer, both included. Throws UsageError: `malformed` where the text is no such range, and naming
/// `option` where it ends before it begins.
std::pair<int, int> parse_layers(const std::string& text, const std::string& option, const std::string& malformed);

}  // namespace consist
