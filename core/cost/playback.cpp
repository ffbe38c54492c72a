#include "core/cost/playback.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <queue>

#include "core/base/index.h"

namespace consist {
namespace {

/// Who waits for each task of a graph.
struct Dependents {
  std::vector<std::int32_t> pending;  // by task: for how many it waits
  std::vector<std::size_t> begin;     // by task, into `tasks`; one more at the end
  std::vector<TaskId> tasks;

  explicit Dependents(const TaskGraph& graph) : pending(graph.size(), 0), begin(graph.size() + 1, 0) {
    const auto each = [&](auto&& visit) {
      for (std::size_t t = 0; t < graph.size(); ++t) {
        const auto task = static_cast<TaskId>(t);
        for (TaskId wait : graph.waits_of(task)) visit(wait, task);
        if (graph.before(task) >= 0) visit(graph.before(task), task);
      }
    };
    each([&](TaskId of, TaskId task) {
      ++begin[index(of) + 1];
      ++pending[index(task)];
    });
    for (std::size_t t = 0; t < graph.size(); ++t) begin[t + 1] += begin[t];
    tasks.resize(begin.back());
    std::vector<std::size_t> at(begin.begin(), begin.end() - 1);
    each([&](TaskId of, TaskId task) { tasks[at[index(of)]++] = task; });
  }
};

class Player {
 public:
  Player(std::span<const Actor> actors, const PlaybackRules& rules) : actors_(actors), rules_(rules) {
    for (const Actor& actor : actors) {
      const auto [known, is_new] = dependents_.try_emplace(actor.graph, *actor.graph);
      State state{.dependents = &known->second, .pending = known->second.pending};
      state.pairs.resize(rules.pairs.size());
      state.meeting_of.assign(index(actor.graph->queues()), -1);
      state.place_of = state.meeting_of;
      states_.push_back(std::move(state));
    }
    for (std::size_t m = 0; m < rules.meetings.size(); ++m) {
      meetings_.emplace_back();
      for (const QueueEnd& end : rules.meetings[m]) {
        State& state = states_[index(end.actor)];
        // An end without tasks is never there: whoever needs it is stuck.
        if (end.queue >= static_cast<int>(state.meeting_of.size())) continue;
        state.meeting_of[index(end.queue)] = static_cast<int>(m);
        state.place_of[index(end.queue)] = static_cast<int>(&end - rules.meetings[m].data());
      }
      meetings_.back().tasks.resize(rules.meetings[m].size());
    }
    if (rules.keep_times) {
      for (const Actor& actor : actors) result_.times.emplace_back(actor.graph->size());
    }
  }

  Playback run() {
    for (std::size_t a = 0; a < actors_.size(); ++a) {
      for (std::size_t t = 0; t < actors_[a].graph->size(); ++t) {
        if (states_[a].dependents->pending[t] == 0) ready({static_cast<int>(a), static_cast<TaskId>(t)});
      }
    }
    while (true) {
      while (!over_now_.empty()) {
        const ActorTask task = over_now_.front();
        over_now_.pop_front();
        finish(task);
      }
      change_speeds();
      if (ends_.empty()) break;
      const Event event = ends_.top();
      ends_.pop();
      Running& running = running_[event.running];
      if (running.version != event.version) continue;  // it goes on at another speed
      now_ = event.at;
      over(event.running);
    }
    result_.seconds = now_;
    find_stuck();
    return std::move(result_);
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct State {
    const Dependents* dependents;
    std::vector<std::int32_t> pending;
    std::vector<int> meeting_of = {};      // by queue, -1: none
    std::vector<int> place_of = {};        // by queue: which of the meeting's ends it is
    int computing = 0;                     // tasks of queue 0 that run and take time
    bool was_computing = false;            // as the speeds of what runs beside it know
    std::vector<std::size_t> beside = {};  // running tasks of other queues whose speed depends on that
    std::size_t compute_at = none;         // what runs on queue 0
    std::vector<double> slowing = {};      // speeds that running tasks of other queues leave to it
    double compute_share = 1;              // the least of them, as it knows
    struct Pair {
      std::array<std::size_t, 2> at{none, none};  // what runs on the two queues
      bool together = false;                      // as the speeds of both know
    };
    std::vector<Pair> pairs = {};  // as PlaybackRules::pairs
  };
  struct Running {
    std::vector<ActorTask> tasks;
    double left = 0, since = 0, speed = 1;  // seconds at full speed
    std::uint32_t version = 0;
  };
  struct Meeting {
    std::vector<ActorTask> tasks;  // by end, of those that are there
    std::size_t arrived = 0;
  };
  struct Event {
    double at;
    std::size_t order;
    std::size_t running;
    std::uint32_t version;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  double seconds_of(const ActorTask& t) const {
    const std::span<const double> seconds = actors_[index(t.actor)].seconds;
    return seconds.empty() ? 0 : seconds[index(t.task)];
  }
  int queue_of(const ActorTask& t) const { return actors_[index(t.actor)].graph->queue_of(t.task); }

  void ready(const ActorTask& task) {
    const int meeting = states_[index(task.actor)].meeting_of[index(queue_of(task))];
    if (meeting < 0) {
      start({&task, 1});
      return;
    }
    Meeting& there = meetings_[index(meeting)];
    there.tasks[index(states_[index(task.actor)].place_of[index(queue_of(task))])] = task;
    if (++there.arrived < there.tasks.size()) return;
    there.arrived = 0;
    if (rules_.on_meeting) rules_.on_meeting(there.tasks);
    start(there.tasks);
  }

  void start(std::span<const ActorTask> tasks) {
    double seconds = 0;
    for (const ActorTask& task : tasks) seconds = std::max(seconds, seconds_of(task));
    for (const ActorTask& task : tasks) {
      if (rules_.keep_times) result_.times[index(task.actor)][index(task.task)].begin = now_;
    }
    if (seconds <= 0) {
      over_now_.insert(over_now_.end(), tasks.begin(), tasks.end());
      return;
    }
    std::size_t at = running_.size();
    if (free_.empty()) {
      running_.emplace_back();
    } else {
      at = free_.back();
      free_.pop_back();
    }
    Running& running = running_[at];
    running.tasks.assign(tasks.begin(), tasks.end());
    running.left = seconds;
    running.since = now_;
    for (const ActorTask& task : tasks) {
      State& state = states_[index(task.actor)];
      if (queue_of(task) == 0) {
        ++state.computing;
        state.compute_at = at;
        touch(task.actor);
        continue;
      }
      if (share_of(task) < 1) state.beside.push_back(at);
      set_in_pairs(task, at);
      if (const double left = left_to_compute(task); left < 1) {
        state.slowing.push_back(left);
        touch(task.actor);
      }
    }
    running.speed = speed_of(running);
    schedule(at);
  }

  double share_of(const ActorTask& task) const { return rules_.share_beside_compute ? rules_.share_beside_compute(task) : 1; }
  double left_to_compute(const ActorTask& task) const {
    return rules_.compute_share_beside ? rules_.compute_share_beside({task.actor, queue_of(task)}) : 1;
  }
  static double least(const std::vector<double>& shares) {
    return shares.empty() ? 1 : *std::min_element(shares.begin(), shares.end());
  }
  double speed_of(const Running& running) const {
    double speed = 1;
    for (const ActorTask& task : running.tasks) {
      if (queue_of(task) == 0) speed = std::min(speed, states_[index(task.actor)].compute_share);
      if (queue_of(task) != 0 && states_[index(task.actor)].was_computing) speed = std::min(speed, share_of(task));
      for (std::size_t p = 0; p < rules_.pairs.size(); ++p) {
        if (place_in(rules_.pairs[p], queue_of(task)) >= 0 && states_[index(task.actor)].pairs[p].together)
          speed = std::min(speed, rules_.pairs[p].share);
      }
    }
    return speed;
  }
  static int place_in(const PlaybackRules::Pair& pair, int queue) { return queue == pair.one ? 0 : queue == pair.other ? 1 : -1; }
  void set_in_pairs(const ActorTask& task, std::size_t at) {
    for (std::size_t p = 0; p < rules_.pairs.size(); ++p) {
      const int place = place_in(rules_.pairs[p], queue_of(task));
      if (place < 0) continue;
      states_[index(task.actor)].pairs[p].at[index(place)] = at;
      touched_.push_back(task.actor);
    }
  }
  void schedule(std::size_t at) {
    Running& running = running_[at];
    ends_.push({now_ + running.left / running.speed, order_++, at, ++running.version});
  }

  void touch(int actor) {
    State& state = states_[index(actor)];
    if ((state.computing > 0) != state.was_computing || least(state.slowing) != state.compute_share) touched_.push_back(actor);
  }

  /// Once all is done that happens now, so that a task behind another one is no pause.
  void change_speeds() {
    for (int actor : touched_) {
      State& state = states_[index(actor)];
      if (const double share = least(state.slowing); share != state.compute_share) {
        state.compute_share = share;
        if (state.compute_at != none) change_speed(state.compute_at);
      }
      for (State::Pair& pair : state.pairs) {
        if (const bool both = pair.at[0] != none && pair.at[1] != none; both != pair.together) {
          pair.together = both;
          for (const std::size_t at : pair.at) {
            if (at != none) change_speed(at);
          }
        }
      }
      if ((state.computing > 0) == state.was_computing) continue;
      state.was_computing = state.computing > 0;
      for (std::size_t at : state.beside) change_speed(at);
    }
    touched_.clear();
  }

  void change_speed(std::size_t at) {
    Running& running = running_[at];
    running.left -= (now_ - running.since) * running.speed;
    running.since = now_;
    running.speed = speed_of(running);
    schedule(at);
  }

  void over(std::size_t at) {
    Running& running = running_[at];
    ++running.version;
    const std::vector<ActorTask> tasks = std::move(running.tasks);
    running.tasks.clear();
    free_.push_back(at);
    for (const ActorTask& task : tasks) {
      State& state = states_[index(task.actor)];
      if (queue_of(task) == 0) {
        --state.computing;
        state.compute_at = none;
        touch(task.actor);
        continue;
      }
      std::erase(state.beside, at);
      set_in_pairs(task, none);
      if (const double left = left_to_compute(task); left < 1) {
        state.slowing.erase(std::find(state.slowing.begin(), state.slowing.end(), left));
        touch(task.actor);
      }
    }
    over_now_.insert(over_now_.end(), tasks.begin(), tasks.end());
  }

  void finish(const ActorTask& task) {
    if (rules_.keep_times) result_.times[index(task.actor)][index(task.task)].end = now_;
    State& state = states_[index(task.actor)];
    state.pending[index(task.task)] = -1;
    const Dependents& dependents = *state.dependents;
    for (std::size_t d = dependents.begin[index(task.task)]; d < dependents.begin[index(task.task) + 1]; ++d) {
      if (--state.pending[index(dependents.tasks[d])] == 0) ready({task.actor, dependents.tasks[d]});
    }
  }

  void find_stuck() {
    for (std::size_t a = 0; a < actors_.size(); ++a) {
      std::vector<bool> known(index(actors_[a].graph->queues()), false);
      for (std::size_t t = 0; t < actors_[a].graph->size(); ++t) {
        const std::size_t queue = index(actors_[a].graph->queue_of(static_cast<TaskId>(t)));
        if (states_[a].pending[t] < 0 || known[queue]) continue;
        known[queue] = true;
        result_.stuck.push_back({static_cast<int>(a), static_cast<TaskId>(t)});
      }
    }
  }

  std::span<const Actor> actors_;
  const PlaybackRules& rules_;
  std::map<const TaskGraph*, Dependents> dependents_;
  std::vector<State> states_;
  std::vector<Meeting> meetings_;
  std::deque<ActorTask> over_now_;
  std::vector<Running> running_;
  std::vector<std::size_t> free_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> ends_;
  std::vector<int> touched_;
  std::size_t order_ = 0;
  double now_ = 0;
  Playback result_;
};

}  // namespace

TaskId TaskGraph::add(int queue, std::span<const TaskId> waits) {
  const auto task = static_cast<TaskId>(queues_.size());
  if (queue >= queues()) newest_.resize(index(queue) + 1, -1);
  queues_.push_back(static_cast<std::int16_t>(queue));
  before_.push_back(newest_[index(queue)]);
  newest_[index(queue)] = task;
  waits_.insert(waits_.end(), waits.begin(), waits.end());
  waits_end_.push_back(waits_.size());
  return task;
}

std::span<const TaskId> TaskGraph::waits_of(TaskId task) const {
  const std::size_t begin = task == 0 ? 0 : waits_end_[index(task) - 1];
  return {waits_.data() + begin, waits_end_[index(task)] - begin};
}

Playback play(std::span<const Actor> actors, const PlaybackRules& rules) {
  return Player(actors, rules).run();
}

}  // namespace consist
