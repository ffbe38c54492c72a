#include "core/job/progress.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace consist {
namespace {

struct Words {
  Activity activity;
  std::string_view before_step;
};
constexpr Words words_of[] = {
    {Activity::reading, "reading data of step "},
    {Activity::running, "step "},
    {Activity::recording, "recording step "},
    {Activity::evaluating, "evaluation after step "},
    {Activity::saving, "writing the checkpoint of step "},
    {Activity::exporting, "exporting the model of step "},
};
constexpr std::string_view round_word = ", round ";
constexpr std::string_view instruction_word = ", instruction ";

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

std::string text_of(const Progress& progress, std::string_view label) {
  const auto words = std::find_if(std::begin(words_of), std::end(words_of),
                                  [&](const Words& candidate) { return candidate.activity == progress.activity; });
  std::string text = std::string(words->before_step) + std::to_string(progress.step);
  if (progress.activity == Activity::evaluating) text += std::string(round_word) + std::to_string(progress.round);
  if (progress.instruction >= 0) text += std::string(instruction_word) + std::to_string(progress.instruction);
  if (!label.empty()) text += ": " + std::string(label);
  return text;
}

std::optional<Progress> parse_progress(std::string_view text) {
  Progress progress;
  const auto words =
      std::find_if(std::begin(words_of), std::end(words_of), [&](const Words& w) { return take_word(text, w.before_step); });
  if (words == std::end(words_of)) return std::nullopt;
  progress.activity = words->activity;
  const auto step = take_number(text);
  if (!step) return std::nullopt;
  progress.step = *step;
  if (take_word(text, round_word)) progress.round = take_number(text).value_or(0);
  if (take_word(text, instruction_word)) {
    const auto instruction = take_number(text);
    if (!instruction) return std::nullopt;
    progress.instruction = *instruction;
  }
  return progress;
}

}  // namespace consist
