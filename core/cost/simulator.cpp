#include "core/cost/simulator.h"

#include <algorithm>
#include <string>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/cost/playback.h"
#include "core/program/operands.h"
#include "core/program/printer.h"

namespace consist {
namespace {

/// Queues of all programs, and of all lanes of the stages; compute is number 0.
QueueTable queues_of(std::span<const Program* const> programs, int stage_axis) {
  std::vector<Queue> queues;
  for (const Program* program : programs) {
    const QueueTable own(*program);
    queues.insert(queues.end(), own.begin(), own.end());
  }
  for (int lane = 0; lane < lanes && stage_axis >= 0; ++lane)
    queues.push_back(Queue::communication(stage_axis, static_cast<Lane>(lane)));
  return QueueTable(std::move(queues));
}

TaskGraph graph_of(const Program& program, const QueueTable& queues) {
  TaskGraph graph;
  for (const Instruction& i : program.instructions) graph.add(static_cast<int>(queues.number_of(i.queue)), i.waits);
  return graph;
}

std::vector<std::vector<QueueEnd>> meetings_of(int stages, int axis, const QueueTable& queues) {
  std::vector<std::vector<QueueEnd>> meetings;
  if (stages < 2) return meetings;
  const auto end = [&](int stage, Lane lane) {
    return QueueEnd{(stage + stages) % stages, static_cast<int>(queues.number_of(Queue::communication(axis, lane)))};
  };
  for (int s = 0; s < stages; ++s) {
    meetings.push_back({end(s, Lane::to_next), end(s + 1, Lane::from_previous)});
    meetings.push_back({end(s, Lane::to_previous), end(s - 1, Lane::from_next)});
  }
  for (const Queue queue : queues) {
    if (queue.lane() != Lane::collective || !queue.axes().intersects(axis)) continue;
    meetings.emplace_back();
    for (int s = 0; s < stages; ++s) meetings.back().push_back({s, static_cast<int>(queues.number_of(queue))});
  }
  return meetings;
}

/// The fraction of its speed that a collective keeps beside kernels; 1 for other instructions.
double share_beside_compute(const Program& program, const Instruction& instruction, const CostModel& costs) {
  if (!instruction.op->is_collective() || !instruction.queue.is_communication() || instruction.queue.lane() != Lane::collective)
    return 1;
  const AxisSet axes = instruction.attributes.axes("axis");
  const auto sent =
      static_cast<double>(instruction.op->bytes_sent(message_bytes(program, instruction), program.mesh.size_of(axes)));
  if (sent <= 0) return 1;
  return costs.transfer_seconds(*instruction.op, sent, axes) /
         costs.transfer_seconds(*instruction.op, sent, axes, Beside::compute);
}

/// By program and instruction.
std::vector<std::vector<double>> shares_beside_compute(std::span<const Program* const> programs, const CostModel& costs) {
  std::vector<std::vector<double>> shares;
  for (const Program* program : programs) {
    std::vector<double>& of_program = shares.emplace_back();
    for (const Instruction& i : program->instructions) of_program.push_back(share_beside_compute(*program, i, costs));
  }
  return shares;
}

}  // namespace

Durations estimated_durations(const Program& program) {
  return costs_of(program).durations(program);
}

Simulation simulate(std::span<const Program* const> programs, std::span<const Durations> durations) {
  if (programs.empty() || programs.size() != durations.size())
    throw ProgramError("a simulation needs the durations of each program: there are " + std::to_string(durations.size()) +
                       " for " + std::to_string(programs.size()) + " programs");
  const int axis = programs[0]->stage_axis, stages = static_cast<int>(programs.size());
  if (axis >= 0 ? stages != programs[0]->mesh.size_of(axis) : stages != 1)
    throw ProgramError("a simulation needs the program of every stage; there are " + std::to_string(stages));
  const QueueTable queues = queues_of(programs, axis);
  std::vector<TaskGraph> graphs;
  std::vector<Actor> actors;
  for (const Program* program : programs) graphs.push_back(graph_of(*program, queues));
  for (std::size_t s = 0; s < graphs.size(); ++s) {
    if (durations[s].size() != graphs[s].size()) throw ProgramError("a simulation needs the duration of each instruction");
    actors.push_back({&graphs[s], durations[s]});
  }
  PlaybackRules rules{.meetings = meetings_of(stages, axis, queues)};
  const CostModel* const costs = programs[0]->costs.get();
  if (costs != nullptr) {
    std::vector<double> left;  // messages and copies leave kernels alone
    for (const Queue queue : queues) {
      const bool collectives = queue.is_communication() && queue.lane() == Lane::collective;
      left.push_back(collectives ? costs->compute_share_beside(queue.axes()) : 1.0);
    }
    rules.share_beside_compute = [shares = shares_beside_compute(programs, *costs)](const ActorTask& task) {
      return shares[static_cast<std::size_t>(task.actor)][static_cast<std::size_t>(task.task)];
    };
    rules.compute_share_beside = [left](const QueueEnd& end) { return left[static_cast<std::size_t>(end.queue)]; };
    const Queue in = Queue::host_to_device(), out = Queue::device_to_host();
    if (costs->copy_share_beside_copies() < 1 && queues.contains(in) && queues.contains(out))
      rules.pairs = {
          {static_cast<int>(queues.number_of(in)), static_cast<int>(queues.number_of(out)), costs->copy_share_beside_copies()}};
  }
  Playback played = play(actors, rules);
  if (!played.stuck.empty()) {
    std::string text = "the ranks block each other:";
    for (const ActorTask& task : played.stuck)
      text += "\n  stage " + std::to_string(task.actor) + " at " +
              to_text(*programs[static_cast<std::size_t>(task.actor)], task.task);
    throw ProgramError(text);
  }
  Simulation simulation{.seconds = played.seconds};
  for (std::size_t s = 0; s < programs.size(); ++s) {
    SimulatedRank rank{.times = std::move(played.times[s])};
    account(*programs[s], played.seconds, rank);
    simulation.ranks.push_back(std::move(rank));
  }
  return simulation;
}

}  // namespace consist
