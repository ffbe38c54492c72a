#include "core/record/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "consist/op.h"
#include "consist/text.h"
#include "core/program/operands.h"

namespace consist {
namespace {

struct Share {
  std::string queue, op;
  std::int64_t count = 0;
  double seconds = 0, flops = 0, bytes = 0;
};

}  // namespace

void Profile::add(std::span<const LaunchTime> times) {
  if (times.empty() || ++seen_ == 1) return;
  sums_.resize(times.size(), 0.0);
  for (std::size_t i = 0; i < times.size(); ++i) sums_[i] += times[i].seconds();
  ++steps_;
}

double Profile::compute_seconds(const Program& program, bool optimizer) const {
  double seconds = 0;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Instruction& instruction = program.instructions.at(i);
    if (instruction.queue == Queue::compute() && (instruction.tag.phase == Phase::optimizer) == optimizer)
      seconds += sums_[i] / static_cast<double>(steps_);
  }
  return seconds;
}

std::string Profile::json(const Program& program) const {
  nlohmann::ordered_json json{{"steps", steps_}, {"instructions", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Instruction& instruction = program.instructions.at(i);
    json["instructions"].push_back({{"op", instruction.op->name()},
                                    {"output", first_output_name(program, instruction)},
                                    {"queue", text_of(instruction.queue, program.mesh)},
                                    {"phase", name_of(instruction.tag.phase)},
                                    {"layer", instruction.tag.layer},
                                    {"micro_batch", instruction.tag.micro_batch},
                                    {"seconds", sums_[i] / static_cast<double>(steps_)}});
  }
  return json.dump();
}

std::string Profile::text(const Program& program) const {
  if (steps_ == 0) return "no step was profiled: the first one does not count\n";
  std::map<std::pair<Queue, std::string_view>, Share> shares;
  std::map<Queue, double> of_queue;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Instruction& instruction = program.instructions.at(i);
    const double seconds = sums_[i] / static_cast<double>(steps_);
    const Cost cost = instruction.op->cost(program, instruction);
    Share& share = shares[{instruction.queue, instruction.op->name()}];
    share.queue = text_of(instruction.queue, program.mesh);
    share.op = instruction.op->name();
    ++share.count;
    share.seconds += seconds;
    share.flops += cost.flops;
    share.bytes += cost.bytes;
    of_queue[instruction.queue] += seconds;
  }
  std::vector<std::pair<Queue, Share>> rows;
  for (const auto& [key, share] : shares) rows.emplace_back(key.first, share);
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  char line[200];
  std::snprintf(line, sizeof line, "%-23s %-25s %6s %10s %6s %12s %12s\n", "QUEUE", "OP", "COUNT", "ms/step", "SHARE", "FLOP/s",
                "B/s");
  std::string text = line;
  for (const auto& [queue, share] : rows) {
    const double whole = of_queue[queue];
    std::snprintf(line, sizeof line, "%-23s %-25s %6lld %10.3f %5.1f%% %12s %12s\n", share.queue.c_str(), share.op.c_str(),
                  static_cast<long long>(share.count), share.seconds * 1e3, whole > 0 ? 100 * share.seconds / whole : 0.0,
                  share.flops > 0 && share.seconds > 0 ? si_text(share.flops / share.seconds).c_str() : "-",
                  share.seconds > 0 ? si_text(share.bytes / share.seconds).c_str() : "-");
    text += line;
  }
  return text;
}

}  // namespace consist
