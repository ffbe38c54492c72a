#include "launch/view/report/time_parts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "consist/error.h"
#include "core/archive/archived_json.h"
#include "core/archive/reader.h"
#include "launch/predict/prediction.h"
#include "launch/view/report/program_lines.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

/// Instructions of one op on tensors that are named alike but for their layer.
struct Item {
  std::string part, text;  ///< "linear model.layers.*.mlp.up_proj"
  std::string dtype;       ///< of the first operand
  double count = 0, seconds = 0, own_seconds = 0, flops = 0, bytes = 0;
  /// Those of the first run that take the longest.
  struct Instruction {
    double seconds = 0;
    std::size_t of_class = 0, index = 0;
  };
  std::vector<Instruction> longest;
};
constexpr std::size_t lines_of_item = 3;
using Items = std::map<std::tuple<std::string, std::string, std::string>, Item>;

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

void add_parts(std::map<std::string, double>& sums, const Json& parts, double weight) {
  for (const auto& [name, value] : parts.items()) {
    if (name == "exposed_communication") {
      for (const auto& [axis, seconds] : value.items()) sums["communication:" + axis] += weight * seconds.get<double>();
    } else {
      sums[name] += weight * value.get<double>();
    }
  }
}

void add_longest(std::vector<Item::Instruction>& longest, const Item::Instruction& instruction) {
  const auto place = std::find_if(longest.begin(), longest.end(),
                                  [&](const Item::Instruction& other) { return instruction.seconds > other.seconds; });
  longest.insert(place, instruction);
  if (longest.size() > lines_of_item) longest.pop_back();
}

/// `of_class`: by its place; `is_first`: of the row's first run, whose program is shown.
void add_items(Items& items, const Json& columns, double weight, std::size_t of_class, bool is_first) {
  const std::size_t count = columns.at("op").size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto text = [&](const char* column) { return columns.at(column).at(i).get<std::string>(); };
    const auto number = [&](const char* column) { return columns.at(column).at(i).get<double>(); };
    const std::string work = text("work"), part = part_of(work, text("queue")),
                      label = text("op") + " " + without_numbers(text("output"));
    Item& item = items[{part, label, text("dtype")}];
    item.part = part;
    item.text = label;
    item.dtype = text("dtype");
    const bool on_compute = work != "communication" && work != "copy";
    if (is_first && columns.contains("instruction"))
      add_longest(item.longest, {number("seconds"), of_class, columns.at("instruction").at(i).get<std::size_t>()});
    item.count += weight;
    item.own_seconds += weight * number("seconds");
    item.seconds += weight * (on_compute ? number("seconds") : number("exposed"));  // what others hide costs the step nothing
    item.flops += weight * number("flops");
    item.bytes += weight * number("bytes");
  }
}

/// Program text of an item, as far as `room` (bytes) goes, from which it is taken.
Json lines_json(const Item& item, const ProgramLines& program, SharedTexts& texts, std::size_t& room) {
  Json lines = Json::array();
  for (const Item::Instruction& instruction : item.longest) {
    const std::string line = program.line(instruction.of_class, instruction.index);
    if (line.empty() || line.size() > room) continue;
    room -= line.size();
    lines.push_back(texts.number_of(line));
  }
  return lines;
}

Json items_json(const Items& items, const ProgramLines& program, SharedTexts& texts, const RunDetail& detail) {
  const std::size_t most = detail.items;
  std::size_t room = detail.program_bytes;
  std::vector<Item> sorted;
  for (const auto& [key, item] : items) sorted.push_back(item);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Item& a, const Item& b) { return a.seconds > b.seconds; });
  std::map<std::string, Item> rest;
  Json json = Json::array();
  const auto add = [&](const Item& i) {
    json.push_back({texts.number_of(i.part), texts.number_of(i.text), texts.number_of(i.dtype), i.count, i.seconds, i.own_seconds,
                    i.flops, i.bytes, lines_json(i, program, texts, room)});
  };
  for (std::size_t n = 0; n < sorted.size(); ++n) {
    if (n < most) {
      add(sorted[n]);
      continue;
    }
    Item& other = rest[sorted[n].part];
    other.part = sorted[n].part;
    other.text = "all others";
    other.count += sorted[n].count;
    other.seconds += sorted[n].seconds;
    other.own_seconds += sorted[n].own_seconds;
    other.flops += sorted[n].flops;
    other.bytes += sorted[n].bytes;
  }
  for (const auto& [part, item] : rest) add(item);
  return json;
}

/// Instructions of one queue and kind that follow each other closely are one segment: [queue, kind, begin, seconds].
struct Segment {
  std::size_t queue = 0, kind = 0;
  double begin = 0, end = 0;
};

std::vector<Segment> merged(const std::vector<Segment>& segments, double gap) {
  std::vector<Segment> out;
  std::map<std::size_t, std::size_t> newest;  // by queue
  for (const Segment& s : segments) {
    const auto found = newest.find(s.queue);
    if (found != newest.end() && out[found->second].kind == s.kind && s.begin - out[found->second].end <= gap) {
      out[found->second].end = std::max(out[found->second].end, s.end);
    } else {
      newest[s.queue] = out.size();
      out.push_back(s);
    }
  }
  return out;
}

Json segments_json(const Json& columns, double step_seconds, SharedTexts& texts, std::size_t most) {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < columns.at("op").size(); ++i) {
    const std::string queue = columns.at("queue").at(i).get<std::string>(), work = columns.at("work").at(i).get<std::string>(),
                      phase = columns.at("phase").at(i).get<std::string>();
    const bool computes = work != "communication" && work != "copy";
    const double begin = columns.at("begin").at(i).get<double>(), seconds = columns.at("seconds").at(i).get<double>();
    const std::string kind = computes ? phase : columns.at("op").at(i).get<std::string>();
    segments.push_back({texts.number_of(queue), texts.number_of(kind), begin, begin + seconds});
  }
  std::stable_sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
  std::vector<Segment> shown = segments;
  for (double gap = step_seconds / 5000; shown.size() > most && gap < step_seconds; gap *= 2) shown = merged(segments, gap);
  Json json = Json::array();
  const auto micro = [](double seconds) { return std::round(seconds * 1e7) / 10; };
  for (const Segment& s : shown) json.push_back({s.queue, s.kind, micro(s.begin), micro(s.end - s.begin)});
  return json;
}

Json classes_json(const Json& timeline, SharedTexts& texts, std::size_t segments) {
  Json classes = Json::array();
  for (const Json& c : timeline.at("classes")) {
    Json of_class{
        {"rank", c.at("rank")}, {"ranks", c.at("ranks")}, {"step_seconds", c.at("step_seconds")}, {"memory", c.at("memory")}};
    if (segments > 0)
      of_class["segments"] = segments_json(c.at("instructions"), c.at("step_seconds").get<double>(), texts, segments);
    classes.push_back(std::move(of_class));
  }
  return classes;
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

Json none(const std::string& reason) {
  return {{"source", "none"}, {"reason", reason}};
}

}  // namespace

Json time_data(const CompareOutcome& outcome, SharedTexts& texts, const RunDetail& detail) {
  std::map<std::string, double> parts, simulated;
  Items items;
  Json first;
  std::optional<ProgramLines> program;
  std::string source;
  double timed_seconds = 0, steps = 0;
  std::size_t runs = 0;
  for (const RunOutcome* run : counted(outcome)) {
    const ArchiveReader archive(run->archive);
    if (archive.version() < 2)
      return none("Archives of version 1 hold no times of instructions. Run it again with this version of Consist.");
    const std::string text = archive.packed_text("/timeline");
    if (text.empty()) return none("The run did not come to its end, where the times of its instructions are recorded.");
    const Json timeline = archived_json<Json>(text);
    if (!timeline.is_object()) throw DataError("the archive " + run->archive + " is damaged: /timeline is no JSON");
    if (timeline.at("classes").empty())
      return none("The run was too short to time its instructions, and " +
                  timeline.at("simulation").value("problem", Json()).dump() + ".");
    const bool is_first = first.is_null();
    if (is_first) {
      first = timeline;
      program.emplace(archive);
      source = timeline.at("source").get<std::string>();
    } else if (timeline.at("source") != source) {
      continue;
    }
    const double weight = 1 / static_cast<double>(timeline.at("classes").size());
    std::size_t of_class = 0;
    for (const Json& c : timeline.at("classes")) {
      add_parts(parts, c.at("parts"), weight);
      if (c.contains("simulated_parts")) add_parts(simulated, c.at("simulated_parts"), weight);
      add_items(items, c.at("instructions"), weight, of_class++, is_first);
      timed_seconds += weight * c.at("step_seconds").get<double>();
    }
    steps += timeline.at("measured_steps").get<double>();
    ++runs;
  }
  const double step_seconds = figures_of(outcome).step_seconds;
  // A simulated step is stretched to the measured one; of a measured one the rest is what the timed steps took longer or shorter.
  double scale = 1 / static_cast<double>(runs);
  if (source == "simulated") scale = step_seconds / timed_seconds;
  for (auto& [name, seconds] : parts) seconds *= scale;
  for (auto& [name, seconds] : simulated) seconds /= static_cast<double>(runs);
  for (auto& [key, item] : items) {
    item.count /= static_cast<double>(runs);
    item.flops /= static_cast<double>(runs);
    item.bytes /= static_cast<double>(runs);
    item.seconds *= scale;
    item.own_seconds *= scale;
  }
  if (source == "measured") parts["untimed"] = step_seconds - timed_seconds * scale;
  return {{"source", source},
          {"measured_steps", steps},
          {"step_seconds", step_seconds},
          {"timed_step_seconds", timed_seconds / static_cast<double>(runs)},
          {"parts", parts},
          {"items", items_json(items, *program, texts, detail)},
          {"classes", classes_json(first, texts, detail.segments)},
          {"simulation", first.at("simulation")},
          {"simulated_parts", simulated}};
}

}  // namespace consist::launch
