// Plays what several ranks have on their queues: who starts when, who waits for whom, who never comes through.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "consist/device.h"
#include "consist/export.h"

namespace consist {

using TaskId = std::int32_t;

/// Tasks of one rank on queues. Those of a queue run one behind the other, in the order in which they were added.
class CONSIST_API TaskGraph {
 public:
  /// `waits`: tasks that were added before, of other queues; this one starts when they are over.
  TaskId add(int queue, std::span<const TaskId> waits);

  std::size_t size() const noexcept { return queues_.size(); }
  int queue_of(TaskId task) const { return queues_[static_cast<std::size_t>(task)]; }
  int queues() const noexcept { return static_cast<int>(newest_.size()); }
  std::span<const TaskId> waits_of(TaskId task) const;
  /// The task before it on its queue, -1: none.
  TaskId before(TaskId task) const { return before_[static_cast<std::size_t>(task)]; }

 private:
  std::vector<std::int16_t> queues_;
  std::vector<TaskId> before_;
  std::vector<TaskId> waits_;
  std::vector<std::size_t> waits_end_;
  std::vector<TaskId> newest_;  // by queue
};

/// One rank. Several may share a graph; graphs and durations outlive the playback.
struct Actor {
  const TaskGraph* graph = nullptr;
  std::span<const double> seconds;  ///< by task; empty: nothing takes time
};

/// A queue of an actor.
struct QueueEnd {
  int actor = 0, queue = 0;
};
struct ActorTask {
  int actor = 0;
  TaskId task = 0;
};

struct PlaybackRules {
  /// Queues whose tasks run together: the first of each at one time, when all of them may start, for as long as the longest of
  /// them; then the second. A queue is in one meeting at most.
  std::vector<std::vector<QueueEnd>> meetings;
  /// Called when the ends of a meeting, in the meeting's order, start a task together; may throw.
  std::function<void(std::span<const ActorTask>)> on_meeting;
  /// The speed at which a task of another queue goes on while queue 0 of its actor works; fraction, 0..1. Empty: 1.
  std::function<double(const ActorTask&)> share_beside_compute;
  /// The speed at which tasks of queue 0 go on while one of this queue of their actor works; fraction, 0..1. The least counts
  /// where several do. Empty: 1.
  std::function<double(const QueueEnd&)> compute_share_beside;
  /// Two queues of each actor whose tasks slow each other down: while both have one, each goes on at `share` of its speed;
  /// fraction, 0..1. Not queue 0; no ends of a meeting; a queue is in one pair at most.
  struct Pair {
    int one = 0, other = 0;
    double share = 1;
  };
  std::vector<Pair> pairs;
  bool keep_times = true;
};

struct Playback {
  std::vector<std::vector<LaunchTime>> times;  ///< by actor and task, in seconds from the start; empty if they are not kept
  double seconds = 0;                          ///< until the last task is over
  /// If the actors block each other: the first task of every queue that was left, by actor. Empty: all came through.
  std::vector<ActorTask> stuck;
};

CONSIST_API Playback play(std::span<const Actor> actors, const PlaybackRules& rules);

}  // namespace consist
