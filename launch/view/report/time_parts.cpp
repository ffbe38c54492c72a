#include "launch/view/report/time_parts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/archive/reader.h"
#include "launch/residual/step_parts.h"
#include "launch/view/report/program_lines.h"

namespace consist::launch {
namespace {

using Json = nlohmann::ordered_json;

/// Program text of a group, as far as `room` (bytes) goes, from which it is taken.
Json lines_json(const InstructionGroup& group, const ProgramLines& program, SharedTexts& texts, std::size_t& room) {
  Json lines = Json::array();
  for (const InstructionGroup::Instruction& instruction : group.longest) {
    const std::string line = program.line(instruction.of_class, instruction.index);
    if (line.empty() || line.size() > room) continue;
    room -= line.size();
    lines.push_back(texts.number_of(line));
  }
  return lines;
}

Json items_json(const std::vector<InstructionGroup>& groups, const ProgramLines& program, SharedTexts& texts,
                const RunDetail& detail) {
  std::size_t room = detail.program_bytes;
  std::map<std::string, InstructionGroup> rest;
  Json json = Json::array();
  const auto add = [&](const InstructionGroup& i) {
    json.push_back({texts.number_of(i.part), texts.number_of(i.text), texts.number_of(i.dtype), i.count, i.seconds, i.own_seconds,
                    i.flops, i.bytes, lines_json(i, program, texts, room)});
  };
  for (std::size_t n = 0; n < groups.size(); ++n) {
    const InstructionGroup& group = groups[n];
    if (n < detail.items) {
      add(group);
      continue;
    }
    InstructionGroup& other = rest[group.part];
    other.part = group.part;
    other.text = "all others";
    other.count += group.count;
    other.seconds += group.seconds;
    other.own_seconds += group.own_seconds;
    other.flops += group.flops;
    other.bytes += group.bytes;
  }
  for (const auto& [part, group] : rest) add(group);
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

/// A role that keeps its bytes through the step is one number: where there are many rows, these are most of the page.
Json memory_json(const Json& memory) {
  Json roles = Json::object();
  for (const auto& [role, bytes] : memory.at("roles").items()) {
    const bool is_constant =
        !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [&](const Json& b) { return b == bytes[0]; });
    roles[role] = is_constant ? bytes[0] : bytes;
  }
  return {{"arena_bytes", memory.at("arena_bytes")}, {"begin", memory.at("begin")}, {"roles", std::move(roles)}};
}

Json classes_json(const Json& timeline, SharedTexts& texts, std::size_t segments) {
  Json classes = Json::array();
  for (const Json& c : timeline.at("classes")) {
    Json of_class{{"rank", c.at("rank")},
                  {"ranks", c.at("ranks")},
                  {"step_seconds", c.at("step_seconds")},
                  {"memory", memory_json(c.at("memory"))}};
    if (segments > 0)
      of_class["segments"] = segments_json(c.at("instructions"), c.at("step_seconds").get<double>(), texts, segments);
    classes.push_back(std::move(of_class));
  }
  return classes;
}

}  // namespace

Json time_data(const StepParts& step, SharedTexts& texts, const RunDetail& detail) {
  if (!step.problem.empty()) return {{"source", "none"}, {"reason", step.problem}};
  const ProgramLines program(ArchiveReader(step.archive));
  return {{"source", step.source},
          {"measured_steps", step.measured_steps},
          {"step_seconds", step.step_seconds},
          {"timed_step_seconds", step.timed_seconds},
          {"parts", step.parts},
          {"items", items_json(step.groups, program, texts, detail)},
          {"classes", classes_json(*step.timeline, texts, detail.segments)},
          {"simulation", step.timeline->at("simulation")},
          {"simulated_parts", step.simulated_parts}};
}

}  // namespace consist::launch
