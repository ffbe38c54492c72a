#include "launch/verdict/reason.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/archive/archived_json.h"
#include "launch/residual/step_parts.h"

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

SpeedReason reason_between(const StepParts& a, const StepParts& b, double scale) {
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

}  // namespace

SpeedReason reason_of(const Side& a, const Side& b) {
  const auto read = [](const Side& side) {
    return of_archive(side.runs.front().outcome.archive, [&] { return step_parts(row_of(side)); });
  };
  const StepParts parts_a = read(a), parts_b = read(b);
  for (const auto& [name, parts] : {std::pair{"A", &parts_a}, {"B", &parts_b}}) {
    if (!parts->problem.empty()) return {.problem = std::string(name) + ": " + parts->problem};
  }
  if (parts_a.source != parts_b.source)
    return {.problem = "the instructions of one side were timed, those of the other simulated; run both with as many steps"};
  const double scale =
      static_cast<double>(a.runs.front().outcome.step_tokens) / static_cast<double>(b.runs.front().outcome.step_tokens);
  return reason_between(parts_a, parts_b, scale);
}

}  // namespace consist::launch
