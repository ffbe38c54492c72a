// The place of a rank in its work, as a text that people read and that can be compared between ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace consist {

/// The activities of a rank within a step, in the order in which all ranks perform them.
enum class Activity : std::uint8_t {
  reading,     ///< the host gets the step's data ready
  running,     ///< the device runs the step
  recording,   ///< the host writes the archive and the terminal
  evaluating,  ///< the device runs the evaluation after the step
  saving,      ///< the host writes the checkpoint after the step
  exporting,   ///< the host writes the trained model
};

/// Position of a rank. Ordered by step, activity, round, instruction: of two ranks the lesser one is behind.
struct Progress {
  std::int64_t step = 0;
  std::int64_t instruction = -1;  ///< the newest that started, where a device runs; -1: none yet
  Activity activity = Activity::running;
  std::int64_t round = 0;  ///< of an evaluation
  std::strong_ordering operator<=>(const Progress& other) const noexcept {
    return std::tie(step, activity, round, instruction) <=> std::tie(other.step, other.activity, other.round, other.instruction);
  }
  bool operator==(const Progress&) const = default;
};

/// "step 12, instruction 345: all_reduce grad.3" ("step 12" before the first instruction), "reading data of step 12",
/// "evaluation after step 12, round 3, instruction 7: linear", "writing the checkpoint of step 12". The text for
/// Job::set_progress.
std::string text_of(const Progress& progress, std::string_view label = {});

/// The position in a text that text_of made; nothing for any other text.
std::optional<Progress> parse_progress(std::string_view text);

}  // namespace consist
