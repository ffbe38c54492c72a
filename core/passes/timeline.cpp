#include "core/passes/timeline.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <tuple>

#include "consist/error.h"
#include "consist/op.h"
#include "core/passes/work.h"

namespace consist {
namespace {

using PartKey = std::tuple<Phase, std::int16_t, std::int16_t>;
PartKey key_of(const Tag& tag) {
  return {tag.phase, tag.micro_batch, tag.stage};
}

bool counts(const Instruction& i) {
  return i.queue == Queue::compute() && i.tag.stage >= 0 && i.tag.phase != Phase::optimizer;
}

/// One rank on its way through its program.
class Walker {
 public:
  Walker(const Program& program, TimelineCost cost) : program_(program), cost_(cost), ready_(program.tensors.size(), 0) {
    for (const Instruction& i : program.instructions) {
      if (i.op->name() == "send") until_sent_[key_of(i.tag)] = instructions_[key_of(i.tag)];
      if (!counts(i)) continue;
      ++instructions_[key_of(i.tag)];
      split_ |= i.tag.phase == Phase::weight_gradient;
    }
  }

  bool finished() const { return at_ == program_.instructions.size(); }
  const std::vector<TimelinePart>& parts() const { return parts_; }

  /// Runs until the end or a message that has not been sent. Returns whether anything ran. Messages are by the lane they are
  /// received on.
  bool advance(std::map<Lane, std::deque<double>>& incoming, const std::map<Lane, std::deque<double>*>& outgoing) {
    const std::size_t from = at_;
    for (auto& [lane, tensors] : expected_) take(tensors, incoming[lane]);
    for (; at_ < program_.instructions.size(); ++at_) {
      const Instruction& i = program_.instructions[at_];
      if (i.tag.phase == Phase::optimizer) continue;
      if (i.op->name() == "receive") {  // asked for ahead of its use: only its reader waits
        ready_[static_cast<std::size_t>(i.outputs[0])] = never;
        expected_[i.queue.lane()].push_back(i.outputs[0]);
        take(expected_[i.queue.lane()], incoming[i.queue.lane()]);
        continue;
      }
      double start = 0;
      for (TensorId id : i.inputs) start = std::max(start, id == no_tensor ? 0.0 : ready_[static_cast<std::size_t>(id)]);
      if (start == never) break;
      if (i.op->name() == "send") outgoing.at(i.queue.lane())->push_back(start);
      const double end = counts(i) ? run(i, start) : start;
      for (TensorId id : i.outputs) {
        if (id != no_tensor) ready_[static_cast<std::size_t>(id)] = end;
      }
    }
    return at_ != from;
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();

  void take(std::deque<TensorId>& tensors, std::deque<double>& messages) {
    for (; !tensors.empty() && !messages.empty(); tensors.pop_front(), messages.pop_front())
      ready_[static_cast<std::size_t>(tensors.front())] = messages.front();
  }

  double seconds(const Instruction& i) {
    if (cost_ == TimelineCost::by_ops) return work_of(program_, i);
    const PartKey part = key_of(i.tag);
    const auto sent = until_sent_.find(part);
    const int counted = sent == until_sent_.end() || sent->second == 0 ? instructions_.at(part) : sent->second;
    if (done_[part]++ >= counted) return 0;
    const double whole = i.tag.phase == Phase::backward && !split_ ? 2 : 1;
    return whole / static_cast<double>(counted);
  }

  double run(const Instruction& i, double start) {
    const double begin = std::max(start, now_);
    now_ = begin + seconds(i);
    const bool same =
        !parts_.empty() && key_of(i.tag) == PartKey{parts_.back().phase, parts_.back().micro_batch, parts_.back().stage};
    if (!same) parts_.push_back({i.tag.phase, i.tag.micro_batch, i.tag.stage, begin, now_});
    parts_.back().end = now_;
    parts_.back().busy += now_ - begin;
    return now_;
  }

  const Program& program_;
  TimelineCost cost_;
  std::vector<double> ready_;                      // by tensor
  std::map<Lane, std::deque<TensorId>> expected_;  // received, but not yet there
  std::map<PartKey, int> instructions_;            // of each part
  std::map<PartKey, int> until_sent_;              // ... before its last send
  std::map<PartKey, int> done_;
  bool split_ = false;
  double now_ = 0;
  std::size_t at_ = 0;
  std::vector<TimelinePart> parts_;
};

std::string cell_of(const TimelinePart& part, std::size_t ranks) {
  const char letter = part.phase == Phase::forward ? 'F' : part.phase == Phase::backward ? 'B' : 'W';
  const auto chunk = static_cast<std::size_t>(part.stage) / ranks;
  return letter + std::to_string(part.micro_batch) + (chunk == 0 ? "" : std::string(1, static_cast<char>('a' + chunk)));
}

}  // namespace

double Timeline::idle_share() const {
  double busy = 0;
  for (const auto& parts : ranks) {
    for (const TimelinePart& part : parts) busy += part.busy;
  }
  return end > 0 ? 1 - busy / (end * static_cast<double>(ranks.size())) : 0;
}

Timeline simulate(std::span<const Program* const> stages, TimelineCost cost) {
  const std::size_t n = stages.size();
  std::vector<Walker> walkers;
  for (const Program* program : stages) walkers.emplace_back(*program, cost);
  std::vector<std::map<Lane, std::deque<double>>> incoming(n);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < n; ++r) {
      const std::map<Lane, std::deque<double>*> outgoing{{Lane::to_next, &incoming[(r + 1) % n][Lane::from_previous]},
                                                         {Lane::to_previous, &incoming[(r + n - 1) % n][Lane::from_next]}};
      moved |= walkers[r].advance(incoming[r], outgoing);
    }
  }
  Timeline timeline;
  for (std::size_t r = 0; r < n; ++r) {
    if (!walkers[r].finished()) throw ProgramError("stage rank " + std::to_string(r) + " waits for a message that never comes");
    timeline.ranks.push_back(walkers[r].parts());
    if (!timeline.ranks.back().empty()) timeline.end = std::max(timeline.end, timeline.ranks.back().back().end);
  }
  return timeline;
}

std::string timeline_text(const Timeline& timeline) {
  const auto units = static_cast<std::size_t>(std::llround(timeline.end));
  std::vector<std::vector<std::string>> rows(timeline.ranks.size(), std::vector<std::string>(units, "."));
  std::size_t width = 1;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const TimelinePart& part : timeline.ranks[r]) {
      const std::string cell = cell_of(part, rows.size());
      width = std::max(width, cell.size());
      for (auto u = std::llround(part.begin); u < std::llround(part.end); ++u) rows[r][static_cast<std::size_t>(u)] = cell;
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
