#include "core/passes/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
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
  return i.queue == Queue::compute() && i.op->touches_memory() && i.tag.stage >= 0 && i.tag.phase != Phase::optimizer;
}

/// Equal parts: every forward part takes 1, what it sends leaves at its end.
class EqualCosts {
 public:
  explicit EqualCosts(const Program& program) {
    for (const Instruction& i : program.instructions) {
      if (i.op->name() == "send") until_sent_[key_of(i.tag)] = instructions_[key_of(i.tag)];
      if (!counts(i)) continue;
      ++instructions_[key_of(i.tag)];
      split_ |= i.tag.phase == Phase::weight_gradient;
    }
  }

  /// Of the next instruction of its part.
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

/// What must have happened before a tensor is there.
struct Needs {
  std::size_t computed = 0;  ///< so many compute instructions of the rank
  std::int32_t from_previous = 0, from_next = 0;
  void raise(const Needs& other) {
    computed = std::max(computed, other.computed);
    from_previous = std::max(from_previous, other.from_previous);
    from_next = std::max(from_next, other.from_next);
  }
};

/// Compute instructions of a row may be one step: none of them waits for more than the first, none before the last sends.
bool continues(const StageOutline::Step& last, const StageOutline::Step& next, const Needs& known) {
  return !last.sends && last.phase == next.phase && last.micro_batch == next.micro_batch && last.stage == next.stage &&
         next.from_previous <= known.from_previous && next.from_next <= known.from_next;
}

/// One rank on its way through its outline.
class Walker {
 public:
  Walker(const StageOutline& outline, TimelineCost cost) : outline_(outline), cost_(cost) {}

  bool finished() const { return at_ == outline_.steps.size(); }
  const std::vector<TimelinePart>& parts() const { return parts_; }

  /// When messages arrive, in their order.
  using Arrivals = std::vector<double>;

  /// Runs until the end or a message that has not been sent. Returns whether anything ran.
  bool advance(const Arrivals& from_previous, const Arrivals& from_next, const std::map<Lane, Arrivals*>& outgoing) {
    const std::size_t from = at_;
    for (; at_ < outline_.steps.size(); ++at_) {
      const StageOutline::Step& step = outline_.steps[at_];
      const auto previous = static_cast<std::size_t>(step.from_previous), next = static_cast<std::size_t>(step.from_next);
      if (previous > from_previous.size() || next > from_next.size()) break;
      double start = now_;
      if (previous > 0) start = std::max(start, from_previous[previous - 1]);
      if (next > 0) start = std::max(start, from_next[next - 1]);
      if (step.sends) {
        Arrivals& messages = *outgoing.at(step.lane);
        messages.push_back(messages.empty() ? start : std::max(start, messages.back()));
      } else {
        run(step, start);
      }
    }
    return at_ != from;
  }

 private:
  void run(const StageOutline::Step& step, double start) {
    const double seconds = cost_ == TimelineCost::equal ? step.equal : step.by_ops;
    if (seconds == 0) return;
    const bool same = !parts_.empty() && start <= now_ && parts_.back().phase == step.phase &&
                      parts_.back().micro_batch == step.micro_batch && parts_.back().stage == step.stage;
    if (!same) parts_.push_back({step.phase, step.micro_batch, step.stage, start, start});
    now_ = parts_.back().end = start + seconds;
  }

  const StageOutline& outline_;
  TimelineCost cost_;
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
    for (const TimelinePart& part : parts) busy += part.end - part.begin;
  }
  return end > 0 ? 1 - busy / (end * static_cast<double>(ranks.size())) : 0;
}

StageOutline outline_of(const Program& program) {
  EqualCosts equal(program);
  std::vector<Needs> needs(program.tensors.size());  // by tensor
  std::vector<StageOutline::Step> computed;
  std::vector<std::vector<StageOutline::Step>> sent(1);  // behind so many compute instructions
  std::map<Lane, std::size_t> newest_sent;               // by lane: behind so many
  Needs arrived;                                         // messages that were asked for so far
  for (const Instruction& i : program.instructions) {
    if (i.tag.phase == Phase::optimizer) continue;
    Needs own;
    if (i.op->name() == "receive") {
      std::int32_t& count = i.queue.lane() == Lane::from_previous ? arrived.from_previous : arrived.from_next;
      ++count;
      (i.queue.lane() == Lane::from_previous ? own.from_previous : own.from_next) = count;
    }
    for (TensorId id : i.inputs) {
      if (id != no_tensor) own.raise(needs[static_cast<std::size_t>(id)]);
    }
    StageOutline::Step step{.phase = i.tag.phase,
                            .micro_batch = i.tag.micro_batch,
                            .stage = i.tag.stage,
                            .from_previous = own.from_previous,
                            .from_next = own.from_next};
    if (i.op->name() == "send") {
      step.sends = true;
      step.lane = i.queue.lane();
      std::size_t& newest = newest_sent[step.lane];  // messages of a lane keep their order
      newest = std::max(newest, own.computed);
      sent[newest].push_back(step);
    } else if (counts(i)) {
      step.equal = equal.seconds(i.tag);
      step.by_ops = work_of(program, i);
      computed.push_back(step);
      sent.emplace_back();
      own.computed = computed.size();
    }
    for (TensorId id : i.outputs) {
      if (id != no_tensor) needs[static_cast<std::size_t>(id)] = own;
    }
  }
  StageOutline outline;
  Needs known;
  for (std::size_t n = 0; n <= computed.size(); ++n) {
    if (n > 0) {
      const StageOutline::Step& step = computed[n - 1];
      if (!outline.steps.empty() && continues(outline.steps.back(), step, known)) {
        outline.steps.back().equal += step.equal;
        outline.steps.back().by_ops += step.by_ops;
      } else {
        outline.steps.push_back(step);
        known.raise({0, step.from_previous, step.from_next});
      }
    }
    outline.steps.insert(outline.steps.end(), sent[n].begin(), sent[n].end());
  }
  return outline;
}

std::string to_words(const StageOutline& outline) {
  std::ostringstream words;
  words.precision(std::numeric_limits<double>::max_digits10);
  for (const StageOutline::Step& s : outline.steps)
    words << s.sends << ' ' << static_cast<int>(s.lane) << ' ' << static_cast<int>(s.phase) << ' ' << s.micro_batch << ' '
          << s.stage << ' ' << s.equal << ' ' << s.by_ops << ' ' << s.from_previous << ' ' << s.from_next << '\n';
  return words.str();
}

StageOutline outline_from(const std::string& words) {
  StageOutline outline;
  std::istringstream text(words);
  for (std::string line; std::getline(text, line);) {
    std::istringstream fields(line);
    StageOutline::Step s;
    int lane = 0, phase = 0;
    fields >> s.sends >> lane >> phase >> s.micro_batch >> s.stage >> s.equal >> s.by_ops >> s.from_previous >> s.from_next;
    if (!fields || lane < 0 || lane >= Queue::lanes || phase < 0 || phase > static_cast<int>(Phase::optimizer))
      throw ProgramError("'" + line + "' is no step of a stage's outline");
    s.lane = static_cast<Lane>(lane);
    s.phase = static_cast<Phase>(phase);
    outline.steps.push_back(s);
  }
  return outline;
}

Timeline simulate(std::span<const StageOutline> stages, TimelineCost cost) {
  const std::size_t n = stages.size();
  std::vector<Walker> walkers;
  for (const StageOutline& outline : stages) walkers.emplace_back(outline, cost);
  std::vector<Walker::Arrivals> from_previous(n), from_next(n);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < n; ++r) {
      const std::map<Lane, Walker::Arrivals*> outgoing{{Lane::to_next, &from_previous[(r + 1) % n]},
                                                       {Lane::to_previous, &from_next[(r + n - 1) % n]}};
      moved |= walkers[r].advance(from_previous[r], from_next[r], outgoing);
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

Timeline simulate(std::span<const Program* const> stages, TimelineCost cost) {
  std::vector<StageOutline> outlines;
  for (const Program* program : stages) outlines.push_back(outline_of(*program));
  return simulate(outlines, cost);
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
