#include "core/job/progress.h"

#include <charconv>

namespace consist {
namespace {

constexpr std::string_view step_word = "step ";
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
  std::string text = std::string(step_word) + std::to_string(progress.step);
  if (progress.instruction >= 0) text += std::string(instruction_word) + std::to_string(progress.instruction);
  if (!label.empty()) text += ": " + std::string(label);
  return text;
}

std::optional<Progress> parse_progress(std::string_view text) {
  Progress progress;
  if (!take_word(text, step_word)) return std::nullopt;
  const auto step = take_number(text);
  if (!step) return std::nullopt;
  progress.step = *step;
  if (take_word(text, instruction_word)) {
    const auto instruction = take_number(text);
    if (!instruction) return std::nullopt;
    progress.instruction = *instruction;
  }
  return progress;
}

}  // namespace consist
