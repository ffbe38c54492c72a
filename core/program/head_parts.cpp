#include "consist/head_parts.h"

#include <charconv>

#include "consist/error.h"

namespace consist {

HeadParts::HeadParts(const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& shared) : own_(own.size()) {
  if (own.empty()) throw ProgramError("a head has no part of its own: state at least one that is not shared by all heads");
  if (own.size() + shared.size() > max_parts) {
    throw ProgramError("a head has " + std::to_string(own.size() + shared.size()) + " parts; at most " +
                       std::to_string(max_parts) + " are supported: split or concat them in two steps");
  }
  std::int64_t first = 0;
  for (const auto* widths : {&own, &shared}) {
    for (const std::int64_t width : *widths) {
      if (width < 1) throw ProgramError("a part of a head has " + std::to_string(width) + " channels; it must have at least 1");
      parts_.push_back({width, first, widths == &shared});
      first += width;
    }
  }
}

HeadParts HeadParts::parse(std::string_view text) {
  const auto refuse = [whole = text]() -> ProgramError {
    return ProgramError("attribute 'parts' is '" + std::string(whole) +
                        "'; it must be numbers of channels, those that all heads share last and marked, such as \"128,64*\"");
  };
  std::vector<std::int64_t> own, shared;
  while (true) {
    std::int64_t width = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
    if (error != std::errc()) throw refuse();
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const bool marked = text.starts_with('*');
    if (marked) text.remove_prefix(1);
    if (!marked && !shared.empty()) throw refuse();
    (marked ? shared : own).push_back(width);
    if (text.empty()) return {own, shared};
    if (!text.starts_with(',')) throw refuse();
    text.remove_prefix(1);
  }
}

std::string HeadParts::text() const {
  std::string text;
  for (const HeadPart& part : parts_) text += (text.empty() ? "" : ",") + std::to_string(part.width) + (part.shared ? "*" : "");
  return text;
}

}  // namespace consist
