#include "launch/residual/step_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "consist/error.h"
#include "core/archive/archived_json.h"
#include "core/archive/reader.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;
using Groups = std::map<std::tuple<std::string, std::string, std::string>, InstructionGroup>;

constexpr std::size_t most_longest = 3;

/// "comm:data.to_next" is part "communication:data"; "comm:data.0+data.1" is of two axes.
std::string part_of(const std::string& work, const std::string& queue) {
  if (work == "copy") return "copies";
  if (work != "communication") return work;
  const std::size_t colon = queue.find(':');
  std::string axes = colon == std::string::npos ? queue : queue.substr(colon + 1);
  for (const std::string_view lane : {".to_next", ".to_previous", ".from_next", ".from_previous"}) {
    if (axes.ends_with(lane)) axes.resize(axes.size() - lane.size());
  }
  return "communication:" + axes;
}

void add_parts(PartSeconds& sums, const Json& parts, double weight) {
  for (const auto& [name, value] : parts.items()) {
    if (name == "exposed_communication") {
      for (const auto& [axis, seconds] : value.items()) sums["communication:" + axis] += weight * seconds.get<double>();
    } else {
      sums[name] += weight * value.get<double>();
    }
  }
}

void add_longest(std::vector<InstructionGroup::Instruction>& longest, const InstructionGroup::Instruction& instruction) {
  const auto place = std::find_if(longest.begin(), longest.end(), [&](const InstructionGroup::Instruction& other) {
    return instruction.seconds > other.seconds;
  });
  longest.insert(place, instruction);
  if (longest.size() > most_longest) longest.pop_back();
}

/// `of_class`: by its place; `is_first`: of the row's first run, whose program is shown.
void add_instructions(Groups& groups, const Json& columns, double weight, std::size_t of_class, bool is_first) {
  const bool simulated = columns.contains("simulated_seconds");
  for (std::size_t i = 0; i < columns.at("op").size(); ++i) {
    const auto text = [&](const char* column) { return columns.at(column).at(i).get<std::string>(); };
    const auto number = [&](const char* column) { return columns.at(column).at(i).get<double>(); };
    const std::string work = text("work"), part = part_of(work, text("queue")),
                      label = text("op") + " " + without_numbers(text("output"));
    InstructionGroup& group = groups[{part, label, text("dtype")}];
    group.part = part;
    group.text = label;
    group.dtype = text("dtype");
    const bool on_compute = work != "communication" && work != "copy";  // what others hide costs the step nothing
    if (is_first && columns.contains("instruction"))
      add_longest(group.longest, {number("seconds"), of_class, columns.at("instruction").at(i).get<std::size_t>()});
    group.count += weight;
    group.own_seconds += weight * number("seconds");
    group.seconds += weight * number(on_compute ? "seconds" : "exposed");
    if (simulated) {
      group.simulated_own_seconds += weight * number("simulated_seconds");
      group.simulated_seconds += weight * number(on_compute ? "simulated_seconds" : "simulated_exposed");
    }
    group.flops += weight * number("flops");
    group.bytes += weight * number("bytes");
  }
}

/// The runs whose times are taken: those that nothing disturbed, if there are any.
std::vector<const RunOutcome*> counted(const CompareOutcome& outcome) {
  std::vector<const RunOutcome*> quiet, all;
  for (const RunOutcome& run : outcome.runs) {
    all.push_back(&run);
    if (disturbance_of(run).empty()) quiet.push_back(&run);
  }
  return quiet.empty() ? all : quiet;
}

/// Reads the timeline of a run, or why there is none.
std::pair<Json, std::string> timeline_of(const std::string& path) {
  const ArchiveReader archive(path);
  if (archive.version() < 2)
    return {{}, "Archives of version 1 hold no times of instructions. Run it again with this version of Consist."};
  const std::string text = archive.packed_text("/timeline");
  if (text.empty()) return {{}, "The run did not come to its end, where the times of its instructions are recorded."};
  Json timeline = archived_json<Json>(text);
  if (!timeline.is_object()) throw DataError("the archive " + path + " is damaged: /timeline is no JSON");
  if (timeline.at("classes").empty()) {
    const std::string problem = timeline.at("simulation").value("problem", Json()).dump();
    return {{}, "The run was too short to time its instructions, and " + problem + "."};
  }
  return {std::move(timeline), {}};
}

/// Sums over timelines of one source, which become means.
struct Sums {
  std::size_t runs = 0;
  bool simulated_everywhere = true;
  Groups groups;

  void add(const Json& timeline, StepParts& sums) {
    const double weight = 1 / static_cast<double>(timeline.at("classes").size());
    std::size_t of_class = 0;
    for (const Json& c : timeline.at("classes")) {
      add_parts(sums.parts, c.at("parts"), weight);
      if (c.contains("simulated_parts")) add_parts(sums.simulated_parts, c.at("simulated_parts"), weight);
      const Json& columns = c.at("instructions");
      simulated_everywhere = simulated_everywhere && columns.contains("simulated_seconds");
      add_instructions(groups, columns, weight, of_class++, runs == 0);
      sums.timed_seconds += weight * c.at("step_seconds").get<double>();
    }
    sums.measured_steps += timeline.at("measured_steps").get<double>();
    ++runs;
  }

  /// A simulated step is stretched to the measured one; of a measured one the rest is what the timed steps took longer or
  /// shorter.
  void settle(StepParts& sums) {
    const double mean = 1 / static_cast<double>(runs);
    const double scale = sums.source == "simulated" ? sums.step_seconds / sums.timed_seconds : mean;
    sums.timed_seconds *= mean;
    for (auto& [name, seconds] : sums.parts) seconds *= scale;
    for (auto& [name, seconds] : sums.simulated_parts) seconds *= mean;
    for (auto& [key, group] : groups) {
      for (double* value : {&group.count, &group.flops, &group.bytes, &group.simulated_seconds, &group.simulated_own_seconds})
        *value *= mean;
      group.seconds *= scale;
      group.own_seconds *= scale;
      sums.groups.push_back(std::move(group));
    }
    std::stable_sort(sums.groups.begin(), sums.groups.end(),
                     [](const InstructionGroup& a, const InstructionGroup& b) { return a.seconds > b.seconds; });
    if (sums.source == "measured") sums.parts["untimed"] = sums.step_seconds - sums.timed_seconds;
    sums.simulated_groups = simulated_everywhere;
  }
};

}  // namespace

StepParts step_parts(const CompareOutcome& outcome) {
  StepParts sums{.step_seconds = figures_of(outcome).step_seconds};
  Sums of_runs;
  for (const RunOutcome* run : counted(outcome)) {
    auto [timeline, problem] = timeline_of(run->archive);
    if (!problem.empty()) return {.problem = problem};
    if (sums.timeline == nullptr) {
      sums.source = timeline.at("source").get<std::string>();
      sums.archive = run->archive;
      sums.timeline = std::make_shared<const Json>(timeline);
    } else if (timeline.at("source") != sums.source) {
      continue;
    }
    of_runs.add(timeline, sums);
  }
  of_runs.settle(sums);
  return sums;
}

}  // namespace consist::launch
