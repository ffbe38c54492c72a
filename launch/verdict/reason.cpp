#include "launch/verdict/reason.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace consist::launch {
namespace {

constexpr std::size_t most_instructions = 5;

void sort_by_change(std::vector<PartChange>& changes) {
  std::stable_sort(changes.begin(), changes.end(),
                   [](const PartChange& x, const PartChange& y) { return std::abs(x.change()) > std::abs(y.change()); });
}

/// Seconds by part and text.
using Seconds = std::map<std::pair<std::string, std::string>, double>;

Seconds seconds_of(const StepParts& step) {
  Seconds seconds;
  for (const InstructionGroup& group : step.groups) seconds[{group.part, group.text}] += group.seconds;
  return seconds;
}

/// `scale`: of B's seconds.
std::vector<PartChange> changes_of(const Seconds& a, const Seconds& b, double scale) {
  std::map<std::pair<std::string, std::string>, PartChange> changes;
  for (const auto& [key, seconds] : a) changes[key] = {key.first, key.second, seconds, 0};
  for (const auto& [key, seconds] : b) {
    PartChange& change = changes.try_emplace(key, PartChange{key.first, key.second, 0, 0}).first->second;
    change.b = scale * seconds;
  }
  std::vector<PartChange> sorted;
  for (const auto& [key, change] : changes) sorted.push_back(change);
  sort_by_change(sorted);
  return sorted;
}

Seconds parts_of(const StepParts& step) {
  Seconds parts;
  for (const auto& [name, seconds] : step.parts) parts[{name, ""}] = seconds;
  return parts;
}

}  // namespace

SpeedReason reason_of(const StepParts& a, const StepParts& b, double scale) {
  for (const auto& [name, parts] : {std::pair{"A", &a}, {"B", &b}}) {
    if (!parts->problem.empty()) return {.problem = std::string(name) + ": " + parts->problem};
  }
  if (a.source != b.source)
    return {.problem = "the instructions of one side were timed, those of the other simulated; run both with as many steps"};
  SpeedReason reason{.problem = {},
                     .step_a = a.step_seconds,
                     .step_b = scale * b.step_seconds,
                     .simulated = a.source == "simulated" || b.source == "simulated"};
  reason.parts = changes_of(parts_of(a), parts_of(b), scale);
  reason.instructions = changes_of(seconds_of(a), seconds_of(b), scale);
  std::erase_if(reason.parts, [](const PartChange& part) { return part.a == 0 && part.b == 0; });
  std::erase_if(reason.instructions, [](const PartChange& part) { return part.change() == 0; });
  if (reason.instructions.size() > most_instructions) reason.instructions.resize(most_instructions);
  return reason;
}

}  // namespace consist::launch
