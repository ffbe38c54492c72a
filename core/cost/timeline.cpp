#include "core/cost/timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "consist/op.h"

namespace consist {
namespace {

using PartKey = std::tuple<Phase, std::int16_t, std::int16_t>;
PartKey key_of(const Tag& tag) {
  return {tag.phase, tag.micro_batch, tag.stage};
}

bool counts(const Instruction& i) {
  return i.queue == Queue::compute() && i.op->touches_memory() && i.tag.stage >= 0 && i.tag.phase != Phase::optimizer;
}

/// Equal parts: every forward part takes 1, what it sends leaves at its end.
class EqualCosts {
 public:
  explicit EqualCosts(const Program& program) {
    for (const Instruction& i : program.instructions) {
      if (i.op->movement() == Movement::send) until_sent_[key_of(i.tag)] = instructions_[key_of(i.tag)];
      if (!counts(i)) continue;
      ++instructions_[key_of(i.tag)];
      split_ |= i.tag.phase == Phase::weight_gradient;
    }
  }

  /// Duration of the next instruction of its part.
  double seconds(const Tag& tag) {
    const PartKey part = key_of(tag);
    const auto sent = until_sent_.find(part);
    const int counted = sent == until_sent_.end() || sent->second == 0 ? instructions_.at(part) : sent->second;
    if (done_[part]++ >= counted) return 0;
    const double whole = tag.phase == Phase::backward && !split_ ? 2 : 1;
    return whole / static_cast<double>(counted);
  }

 private:
  std::map<PartKey, int> instructions_;  // of each part
  std::map<PartKey, int> until_sent_;    // ... before its last send
  std::map<PartKey, int> done_;
  bool split_ = false;
};

/// Adds work to a rank's parts: what goes on with the same part without a pause is one.
void add_work(std::vector<TimelinePart>& parts, const TimelinePart& work) {
  if (work.end <= work.begin) return;
  const bool same = !parts.empty() && work.begin <= parts.back().end && parts.back().phase == work.phase &&
                    parts.back().micro_batch == work.micro_batch && parts.back().stage == work.stage;
  if (!same) parts.push_back(work);
  parts.back().end = work.end;
}

Timeline with_end(Timeline timeline) {
  for (const auto& parts : timeline.ranks) {
    if (!parts.empty()) timeline.end = std::max(timeline.end, parts.back().end);
  }
  return timeline;
}

std::string cell_of(const TimelinePart& part, std::size_t ranks) {
  const char letter = part.phase == Phase::forward ? 'F' : part.phase == Phase::backward ? 'B' : 'W';
  const auto chunk = static_cast<std::size_t>(part.stage) / ranks;
  return letter + std::to_string(part.micro_batch) + (chunk == 0 ? "" : std::string(1, static_cast<char>('a' + chunk)));
}

}  // namespace

double Timeline::bubble_fraction() const {
  double busy = 0;
  for (const auto& parts : ranks) {
    for (const TimelinePart& part : parts) busy += part.end - part.begin;
  }
  return end > 0 ? 1 - busy / (end * static_cast<double>(ranks.size())) : 0;
}

Durations equal_durations(const Program& program) {
  EqualCosts equal(program);
  Durations seconds;
  for (const Instruction& i : program.instructions) seconds.push_back(counts(i) ? equal.seconds(i.tag) : 0);
  return seconds;
}

Durations without_messages(const Program& program, std::span<const double> seconds) {
  Durations durations(program.instructions.size(), 0);
  for (std::size_t n = 0; n < durations.size(); ++n) {
    if (counts(program.instructions[n])) durations[n] = seconds[n];
  }
  return durations;
}

Timeline timeline_of(std::span<const Program* const> stages, const Simulation& simulation) {
  Timeline timeline;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    std::vector<TimelinePart>& parts = timeline.ranks.emplace_back();
    for (std::size_t i = 0; i < stages[s]->instructions.size(); ++i) {
      const Instruction& instruction = stages[s]->instructions[i];
      const LaunchTime& time = simulation.ranks[s].times[i];
      const Tag& tag = instruction.tag;
      if (counts(instruction)) add_work(parts, {tag.phase, tag.micro_batch, tag.stage, time.begin, time.end});
    }
  }
  return with_end(std::move(timeline));
}

std::string timeline_text(const Timeline& timeline) {
  const auto units = static_cast<std::size_t>(std::llround(timeline.end));
  std::vector<std::vector<std::string>> rows(timeline.ranks.size(), std::vector<std::string>(units, "."));
  std::size_t width = 1;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<double> busy(units, 0), most(units, 0);  // of each unit: all work, and the largest share of one part
    for (const TimelinePart& part : timeline.ranks[r]) {
      const std::string cell = cell_of(part, rows.size());
      width = std::max(width, cell.size());
      for (auto u = static_cast<std::size_t>(part.begin); u < units && static_cast<double>(u) < part.end; ++u) {
        const auto unit = static_cast<double>(u);
        const double share = std::min(part.end, unit + 1) - std::max(part.begin, unit);
        busy[u] += share;
        if (share <= most[u]) continue;
        most[u] = share;
        rows[r][u] = cell;
      }
    }
    for (std::size_t u = 0; u < units; ++u) {
      if (busy[u] < 0.5) rows[r][u] = ".";
    }
  }
  constexpr std::size_t columns = 120;
  const std::size_t at_once = std::max<std::size_t>(1, columns / (width + 1));
  std::string text;
  for (std::size_t first = 0; first < units; first += at_once) {
    if (units > at_once)
      text += "time " + std::to_string(first) + " to " + std::to_string(std::min(units, first + at_once)) + "\n";
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::string line = "rank " + std::to_string(r) + " |";
      for (std::size_t u = first; u < std::min(units, first + at_once); ++u)
        line += " " + rows[r][u] + std::string(width - rows[r][u].size(), ' ');
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
  }
  return text;
}

}  // namespace consist
