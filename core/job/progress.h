// Where a rank is in its work, as a text that people read and that can be compared between ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace consist {

/// Position of a rank: the step, and the newest instruction that started in it. Ordered by step, then instruction.
struct Progress {
  std::int64_t step = 0;
  std::int64_t instruction = -1;  ///< -1: none yet
  auto operator<=>(const Progress&) const = default;
};

/// "step 12, instruction 345: all_reduce grad.3" ("step 12" before the first instruction). The text for Job::set_progress.
std::string text_of(const Progress& progress, std::string_view label = {});

/// The position in a text that text_of made; nothing for any other text.
std::optional<Progress> parse_progress(std::string_view text);

}  // namespace consist
