// Parts that are no plugins: options name them as they name plugins.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "core/config/run_config.h"

namespace consist {

struct BuiltInPart {
  std::string_view kind, name, summary;
};

inline constexpr std::array built_in_parts{
    BuiltInPart{"loss", next_token, "the next token's cross-entropy, as models make it themselves"},
    BuiltInPart{"adapter", no_adapter, "the model as it is"}};

/// The part of that name; null without one.
inline const BuiltInPart* find_built_in(std::string_view name) {
  const auto found = std::ranges::find(built_in_parts, name, &BuiltInPart::name);
  return found == built_in_parts.end() ? nullptr : &*found;
}

}  // namespace consist
