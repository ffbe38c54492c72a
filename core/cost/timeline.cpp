#include "core/cost/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <tuple>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/cost/playback.h"

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

/// Instructions and messages that must be complete before a tensor is there.
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

/// A stage's outline as tasks: computing on queue 0, a queue for each lane of messages. Receives are asked for at once.
struct OutlineTasks {
  TaskGraph graph;
  std::vector<double> seconds;
  std::vector<const StageOutline::Step*> steps;  // by task; null for a receive

  static int queue_of(Lane lane) { return static_cast<int>(lane); }  // Lane::collective, 0, is none of messages

  OutlineTasks(const StageOutline& outline, TimelineCost cost) {
    TaskId computed = -1;
    std::array<std::vector<TaskId>, lanes> received;
    for (const StageOutline::Step& step : outline.steps) {
      std::vector<TaskId> waits;
      const auto wait_for = [&](Lane lane, std::int32_t count) {
        std::vector<TaskId>& tasks = received[static_cast<std::size_t>(lane)];
        while (static_cast<std::int32_t>(tasks.size()) < count) tasks.push_back(add(lane, {}, 0, nullptr));
        if (count > 0) waits.push_back(tasks[static_cast<std::size_t>(count) - 1]);
      };
      wait_for(Lane::from_previous, step.from_previous);
      wait_for(Lane::from_next, step.from_next);
      if (step.sends) {
        if (computed >= 0) waits.push_back(computed);
        add(step.lane, waits, 0, &step);
      } else {
        const double takes = cost == TimelineCost::equal    ? step.equal
                             : cost == TimelineCost::by_ops ? step.by_ops
                                                            : step.measured;
        computed = add(Lane::collective, waits, takes, &step);
      }
    }
  }
  TaskId add(Lane lane, std::span<const TaskId> waits, double takes, const StageOutline::Step* step) {
    seconds.push_back(takes);
    steps.push_back(step);
    return graph.add(queue_of(lane), waits);
  }
  /// So many more receives on a lane as make `count`: what is sent and not waited for arrives, too.
  void receive_all(Lane lane, std::size_t count) {
    for (std::size_t n = count_on(lane); n < count; ++n) add(lane, {}, 0, nullptr);
  }
  std::size_t count_on(Lane lane) const {
    std::size_t count = 0;
    for (std::size_t t = 0; t < graph.size(); ++t) count += graph.queue_of(static_cast<TaskId>(t)) == queue_of(lane) ? 1 : 0;
    return count;
  }
};

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

StageOutline outline_of(const Program& program, const Durations& measured) {
  EqualCosts equal(program);
  const CostModel& costs = costs_of(program);
  std::vector<Needs> needs(program.tensors.size());  // by tensor
  std::vector<StageOutline::Step> computed;
  std::vector<std::vector<StageOutline::Step>> sent(1);  // behind so many compute instructions
  std::map<Lane, std::size_t> newest_sent;               // by lane: behind so many
  Needs arrived;                                         // messages that were asked for so far
  for (std::size_t at = 0; at < program.instructions.size(); ++at) {
    const Instruction& i = program.instructions[at];
    if (i.tag.phase == Phase::optimizer) continue;
    Needs own;
    if (i.op->movement() == Movement::receive) {
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
    if (i.op->movement() == Movement::send) {
      step.sends = true;
      step.lane = i.queue.lane();
      std::size_t& newest = newest_sent[step.lane];  // messages of a lane keep their order
      newest = std::max(newest, own.computed);
      sent[newest].push_back(step);
    } else if (counts(i)) {
      step.equal = equal.seconds(i.tag);
      step.by_ops = costs.seconds(program, i);
      step.measured = measured.empty() ? 0 : measured.at(at);
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
        outline.steps.back().measured += step.measured;
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
          << s.stage << ' ' << s.equal << ' ' << s.by_ops << ' ' << s.measured << ' ' << s.from_previous << ' ' << s.from_next
          << '\n';
  return words.str();
}

StageOutline outline_from(const std::string& words) {
  StageOutline outline;
  std::istringstream text(words);
  for (std::string line; std::getline(text, line);) {
    std::istringstream fields(line);
    StageOutline::Step s;
    int lane = 0, phase = 0;
    fields >> s.sends >> lane >> phase >> s.micro_batch >> s.stage >> s.equal >> s.by_ops >> s.measured >> s.from_previous >>
        s.from_next;
    if (!fields || lane < 0 || lane >= lanes || phase < 0 || phase > static_cast<int>(Phase::optimizer))
      throw ProgramError("'" + line + "' is no step of a stage's outline");
    s.lane = static_cast<Lane>(lane);
    s.phase = static_cast<Phase>(phase);
    outline.steps.push_back(s);
  }
  return outline;
}

Timeline simulate(std::span<const StageOutline> stages, TimelineCost cost) {
  const std::size_t n = stages.size();
  std::vector<OutlineTasks> tasks;
  for (const StageOutline& outline : stages) tasks.emplace_back(outline, cost);
  PlaybackRules rules;
  for (std::size_t r = 0; r < n; ++r) {
    const std::size_t next = (r + 1) % n, previous = (r + n - 1) % n;
    tasks[next].receive_all(Lane::from_previous, tasks[r].count_on(Lane::to_next));
    tasks[previous].receive_all(Lane::from_next, tasks[r].count_on(Lane::to_previous));
    const auto end = [](std::size_t rank, Lane lane) { return QueueEnd{static_cast<int>(rank), OutlineTasks::queue_of(lane)}; };
    rules.meetings.push_back({end(r, Lane::to_next), end(next, Lane::from_previous)});
    rules.meetings.push_back({end(r, Lane::to_previous), end(previous, Lane::from_next)});
  }
  std::vector<Actor> actors;
  for (const OutlineTasks& of_rank : tasks) actors.push_back({&of_rank.graph, of_rank.seconds});
  const Playback played = play(actors, rules);
  if (!played.stuck.empty()) {
    throw ProgramError("stage rank " + std::to_string(played.stuck.front().actor) + " waits for a message that never comes");
  }
  Timeline timeline;
  for (std::size_t r = 0; r < n; ++r) {
    std::vector<TimelinePart>& parts = timeline.ranks.emplace_back();
    for (std::size_t t = 0; t < tasks[r].steps.size(); ++t) {
      const StageOutline::Step* step = tasks[r].steps[t];
      const LaunchTime& time = played.times[r][t];
      if (step != nullptr && !step->sends) add_work(parts, {step->phase, step->micro_batch, step->stage, time.begin, time.end});
    }
  }
  return with_end(std::move(timeline));
}

Durations equal_durations(const Program& program) {
  EqualCosts equal(program);
  Durations seconds;
  for (const Instruction& i : program.instructions) seconds.push_back(counts(i) ? equal.seconds(i.tag) : 0);
  return seconds;
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
