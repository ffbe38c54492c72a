// JSON that comes from outside: bounded in size and depth, so that neither reading it nor printing a part of it in a message can
// exhaust the stack or take long, and named where it is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "consist/export.h"

namespace consist {

struct JsonRules {
  std::int64_t most_bytes = std::int64_t{16} << 20;
  int most_depth = 32;  ///< of objects and lists inside each other; the outermost is 1
  /// Treatment of a repeated key of an object. JSON leaves it open; Python's reader takes the last.
  enum class Repeated { last, refused } repeated = Repeated::last;
  /// Comments (# and // to the end of the line, /* */) and commas behind the last element are passed over, as Hjson has them.
  bool comments = false;
};

/// Parses `text`. Throws DataError that begins with `name` and says what is wrong, at which line and column or under which key.
/// Takes time linear in the text, but for the logarithm of the number of keys.
CONSIST_API nlohmann::json parse_json(std::string_view text, const std::string& name, const JsonRules& rules = {});

/// The file at `path`, which must be a regular one: a pipe or a device could go on for ever. Throws as InputFile and parse_json.
CONSIST_API nlohmann::json read_json(const std::string& path, const JsonRules& rules = {});

/// A value for a message: as JSON on one line, fit for a terminal, cut after `most` bytes.
CONSIST_API std::string shown(const nlohmann::json& value, std::size_t most = 200);

}  // namespace consist
