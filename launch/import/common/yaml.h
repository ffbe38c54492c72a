// YAML as a tree.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace consist::readers {

/// One document of YAML, plain scalars as PyYAML reads them (yes and off are truth values; 1e-5, a text there, is a number here).
/// Throws DataError that begins with `name` and says the line: for what is no YAML, repeated keys, aliases (which could unfold
/// without end), several documents, and more than 32 levels or 100,000 values;
/// UsageError in a build without yaml-cpp.
nlohmann::json parse_yaml(const std::string& text, const std::string& name);

}  // namespace consist::readers
