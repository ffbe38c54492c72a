#include "launch/verdict/reason.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/archive/archived_json.h"
#include "launch/view/report/time_parts.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_instructions = 5;

void sort_by_change(std::vector<PartChange>& changes) {
  std::stable_sort(changes.begin(), changes.end(),
                   [](const PartChange& x, const PartChange& y) { return std::abs(x.change()) > std::abs(y.change()); });
}

/// Seconds by part and text of a row's instructions (time_data()'s "items": part, text, dtype, count, seconds, ...).
using Seconds = std::map<std::pair<std::string, std::string>, double>;

Seconds seconds_of(const Json& data, const SharedTexts& texts) {
  Seconds seconds;
  for (const Json& item : data.at("items")) {
    const auto& names = texts.all();
    seconds[{names.at(item.at(0).get<std::size_t>()), names.at(item.at(1).get<std::size_t>())}] += item.at(4).get<double>();
  }
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

Seconds parts_of(const Json& data) {
  Seconds parts;
  for (const auto& [name, seconds] : data.at("parts").items()) parts[{name, ""}] = seconds.get<double>();
  return parts;
}

SpeedReason reason_between(const Json& a, const Json& b, const SharedTexts& texts, double scale) {
  SpeedReason reason{.problem = {},
                     .step_a = a.at("step_seconds").get<double>(),
                     .step_b = scale * b.at("step_seconds").get<double>(),
                     .simulated = a.at("source") == "simulated" || b.at("source") == "simulated"};
  reason.parts = changes_of(parts_of(a), parts_of(b), scale);
  reason.instructions = changes_of(seconds_of(a, texts), seconds_of(b, texts), scale);
  std::erase_if(reason.parts, [](const PartChange& part) { return part.a == 0 && part.b == 0; });
  std::erase_if(reason.instructions, [](const PartChange& part) { return part.change() == 0; });
  if (reason.instructions.size() > most_instructions) reason.instructions.resize(most_instructions);
  return reason;
}

}  // namespace

SpeedReason reason_of(const Side& a, const Side& b) {
  SharedTexts texts;
  constexpr RunDetail detail{.points = 0, .segments = 0, .items = 4000, .program_bytes = 0};
  const auto read = [&](const Side& side) {
    return of_archive(side.runs.front().outcome.archive, [&] { return time_data(row_of(side), texts, detail); });
  };
  const Json data_a = read(a), data_b = read(b);
  for (const auto& [name, data] : {std::pair{"A", &data_a}, {"B", &data_b}}) {
    if (data->at("source") == "none") return {.problem = std::string(name) + ": " + data->at("reason").get<std::string>()};
  }
  if (data_a.at("source") != data_b.at("source"))
    return {.problem = "the instructions of one side were timed, those of the other simulated; run both with as many steps"};
  const double scale =
      static_cast<double>(a.runs.front().outcome.step_tokens) / static_cast<double>(b.runs.front().outcome.step_tokens);
  return reason_between(data_a, data_b, texts, scale);
}

}  // namespace consist::launch
