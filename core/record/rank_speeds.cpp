#include "core/record/rank_speeds.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include "consist/cost.h"
#include "consist/op.h"
#include "consist/text.h"

namespace consist {
namespace {

std::string words_of(const OpTimes& times) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  for (const auto& [op, seconds] : times) text << op << ' ' << seconds.measured << ' ' << seconds.by_cost << '\n';
  return text.str();
}

OpTimes times_of(const std::string& words) {
  OpTimes times;
  std::istringstream text(words);
  std::string op;
  for (OpSeconds seconds; text >> op >> seconds.measured >> seconds.by_cost;) times[op] = seconds;
  return times;
}

}  // namespace

OpTimes op_times(const Program& program, const Profile& profile) {
  OpTimes times;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.queue != Queue::compute() || instruction.tag.phase == Phase::optimizer) continue;
    OpSeconds& seconds = times[std::string(instruction.op->name())];
    seconds.measured += profile.seconds(i);
    seconds.by_cost += costs_of(program).seconds(program, instruction);
  }
  return times;
}

std::vector<OpTimes> collect_op_times(Job& job, const OpTimes& own) {
  std::vector<OpTimes> all;
  for (const std::string& words : job.gather("op_times", words_of(own), job.timeout())) all.push_back(times_of(words));
  return all;
}

std::vector<double> rank_speeds(std::span<const OpTimes> ranks) {
  std::vector<double> expected(ranks.size(), 0), measured(ranks.size(), 0), speeds(ranks.size(), 1);
  if (ranks.empty()) return speeds;
  for (const auto& [op, unused] : ranks[0]) {
    const bool everywhere = std::all_of(ranks.begin(), ranks.end(), [&, name = op](const OpTimes& times) {
      const auto found = times.find(name);
      return found != times.end() && found->second.measured > 0 && found->second.by_cost > 0;
    });
    if (!everywhere) continue;
    OpSeconds sum;
    for (const OpTimes& times : ranks) {
      sum.measured += times.at(op).measured;
      sum.by_cost += times.at(op).by_cost;
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      expected[r] += ranks[r].at(op).by_cost * sum.measured / sum.by_cost;
      measured[r] += ranks[r].at(op).measured;
    }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (measured[r] > 0) speeds[r] = expected[r] / measured[r];
  }
  return speeds;
}

std::string stage_speeds_text(const std::vector<double>& speeds, const Mesh& mesh, int stage_axis) {
  std::string text;
  for (int stage = 0; stage < mesh.size_of(stage_axis); ++stage) {
    double slowest = std::numeric_limits<double>::infinity();
    for (int rank = 0; rank < static_cast<int>(speeds.size()); ++rank) {
      if (mesh.coordinate(rank, stage_axis) == stage) slowest = std::min(slowest, speeds[static_cast<std::size_t>(rank)]);
    }
    text += (stage > 0 ? ":" : "") + fixed_text(slowest, 3);
  }
  return text;
}

}  // namespace consist
