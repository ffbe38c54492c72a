// Configuration files: options of a run by name, as TOML or JSON; options of parts in a table (an object) named by the part.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/options.h"

namespace consist {

/// One key of a file.
struct ConfigEntry {
  std::string name;      ///< "steps", "ddp.bucket-size", "zero3-offload.offload-optimizer.device"
  nlohmann::json value;  ///< a boolean, a number, a string, or a list of these
  std::string said;      ///< for messages: "run.toml, line 3: steps"
  bool is_text = false;  ///< the value is the option's text, whatever its kind: as archives have options of plugins
  bool from_results = false;  ///< of an archive or a checkpoint, which cannot give options of roles code and results
};

/// The keys of a file that ends in .toml or .json, in its order. Throws UsageError for another ending; SystemError if it cannot
/// be read; DataError naming file and line for one that is not legal, repeats a key, is larger than 1 MiB,
/// has more than 8 tables inside each other, or holds a value of another kind (null, dates, lists of lists).
CONSIST_API std::vector<ConfigEntry> read_config_file(const std::string& path);

/// A TOML text as a tree; dates become texts. Throws DataError with `name` and the line for what is no TOML or nests deeper than
/// 32 levels.
CONSIST_API nlohmann::json parse_toml(const std::string& text, const std::string& name);

/// A value of an entry, the whole or an element of its list, as legal_value() takes it: a flag must be true or false, a number a
/// number without quotes (sizes in bytes may be strings with a suffix), a text a string. Throws UsageError for another kind.
CONSIST_API std::string option_text(const OptionSpec& spec, const nlohmann::json& value, const ConfigEntry& entry);

/// `value` (a legal_value() of the spec) as TOML: 100, 3e-4, true, "ddp".
CONSIST_API std::string toml_value(const OptionSpec& spec, const std::string& value);
/// `name` as a key of TOML, in quotes where it needs them.
CONSIST_API std::string toml_key(const std::string& name);

}  // namespace consist
