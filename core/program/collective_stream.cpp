#include "core/program/collective_stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "consist/error.h"
#include "consist/op.h"
#include "core/cost/playback.h"
#include "core/files/sha256.h"
#include "core/network/wire.h"
#include "core/program/operands.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"

namespace consist {
namespace {

using Before = CollectiveCall::Before;

std::size_t slot_of(Queue queue) {
  return static_cast<std::size_t>(queue.index() - Queue::first_communication);
}

bool is_message(const Instruction& i) {
  return i.op->name() == "send" || i.op->name() == "receive";
}

/// Names belong to it: two gradients of one size that change places would be summed without an error. Along the axis of pipeline
/// stages the members of a collective name their tensors by themselves.
std::string describe_call(const Program& program, const Instruction& i) {
  // The two ends of a message have different ops and lanes.
  std::string what = is_message(i) ? "message" : std::string(i.op->name()) + " " + i.attributes.key();
  const bool named = is_message(i) || i.queue.axis() != program.stage_axis;
  for (TensorId id : i.inputs.empty() ? i.outputs : i.inputs) {
    if (id == no_tensor) continue;
    const Tensor& t = program[id];
    what +=
        ";" + (named ? t.name : std::string()) + " " + std::string(name_of(t.dtype)) + " " + std::to_string(program.bytes(id));
  }
  return what;
}

void take_later(Before& before, const Before& other) {
  for (std::size_t q = 0; q < before.size(); ++q) before[q] = std::max(before[q], other[q]);
}

}  // namespace

CollectiveStream collective_stream(const Program& program) {
  CollectiveStream stream;
  std::vector<Before> over(program.instructions.size());  // by instruction: calls that are over when it is
  std::vector<std::int64_t> last(Queue::count, -1);       // by queue: its newest instruction
  for (std::size_t index = 0; index < program.instructions.size(); ++index) {
    const Instruction& i = program.instructions[index];
    Before& mine = over[index];
    std::int64_t& previous = last[static_cast<std::size_t>(i.queue.index())];
    if (previous >= 0) mine = over[static_cast<std::size_t>(previous)];
    for (InstructionId wait : i.waits) take_later(mine, over[static_cast<std::size_t>(wait)]);
    previous = static_cast<std::int64_t>(index);
    if (!i.op->is_collective()) continue;
    stream.push_back({i.queue, describe_call(program, i), to_text(program, static_cast<InstructionId>(index)), mine});
    ++mine[slot_of(i.queue)];
  }
  return stream;
}

std::string fingerprint_of(const CollectiveStream& stream) {
  Sha256 hash;
  for (const CollectiveCall& call : stream) {
    network::WireWriter bytes;
    bytes.integer(static_cast<std::int8_t>(call.queue.index())).text(call.what);
    for (std::int32_t count : call.before) bytes.integer(count);
    const std::string text = bytes.take();
    hash.update(text.data(), text.size());
  }
  return hash.hex();
}

std::string encode(const CollectiveStream& stream) {
  network::WireWriter bytes;
  for (const CollectiveCall& call : stream) {
    bytes.integer(static_cast<std::int8_t>(call.queue.index())).text(call.what).text(call.text);
    for (std::int32_t count : call.before) bytes.integer(count);
  }
  return bytes.take();
}

CollectiveStream decode_stream(std::string_view bytes) {
  CollectiveStream stream;
  for (network::WireReader reader(bytes); !reader.at_end();) {
    const int queue = reader.integer<std::int8_t>() - Queue::first_communication;
    if (queue < 0 || queue >= CollectiveCall::queues) throw DataError("a rank's stream of collectives names an unknown queue");
    CollectiveCall call{Queue::communication(queue % Mesh::max_axes, static_cast<Lane>(queue / Mesh::max_axes)), "", "", {}};
    call.what = reader.text();
    call.text = reader.text();
    for (std::int32_t& count : call.before) count = reader.integer<std::int32_t>();
    stream.push_back(std::move(call));
  }
  return stream;
}

namespace {

/// One end of a call: a rank, and the queue on which it has it.
struct End {
  int rank;
  Queue queue;
};

/// The other end of a lane that sends.
Lane opposite(Lane lane) {
  return lane == Lane::to_next ? Lane::from_previous : Lane::from_next;
}

/// The ends that must come together for what `rank` has on `queue`; empty where the group is looked at from another of its ends:
/// a collective from its first member, a message from its sender.
std::vector<End> ends_of(const Mesh& mesh, int rank, Queue queue) {
  if (queue.axis() >= mesh.axes()) return {};
  const std::vector<int> group = mesh.group(rank, queue.axis());
  const int at = mesh.coordinate(rank, queue.axis()), n = static_cast<int>(group.size());
  std::vector<End> ends;
  if (queue.lane() == Lane::collective) {
    for (int member : at == 0 ? group : std::vector<int>{}) ends.push_back({member, queue});
  } else if (queue.lane() == Lane::to_next || queue.lane() == Lane::to_previous) {
    const int to = (at + (queue.lane() == Lane::to_next ? 1 : n - 1)) % n;
    ends = {{rank, queue}, {group[static_cast<std::size_t>(to)], Queue::communication(queue.axis(), opposite(queue.lane()))}};
  }
  return ends;
}

/// A stream as tasks, one for each call.
TaskGraph graph_of(const CollectiveStream& stream) {
  TaskGraph graph;
  std::vector<std::vector<TaskId>> of_queue(CollectiveCall::queues);
  for (const CollectiveCall& call : stream) {
    std::vector<TaskId> waits;
    for (std::size_t q = 0; q < call.before.size(); ++q) {
      // Calls that do not come before it are waited for in vain.
      if (call.before[q] > 0 && q != slot_of(call.queue)) {
        const auto newest = static_cast<std::size_t>(call.before[q]);
        if (newest > of_queue[q].size()) throw ProgramError("a call waits for calls that come behind it: " + call.text);
        waits.push_back(of_queue[q][newest - 1]);
      }
    }
    of_queue[slot_of(call.queue)].push_back(graph.add(static_cast<int>(slot_of(call.queue)), waits));
  }
  return graph;
}

/// Plays the streams of all ranks, in which nothing takes time.
class Meetings {
 public:
  Meetings(const Mesh& mesh, std::span<const CollectiveStream* const> streams, std::span<const int> names)
      : mesh_(mesh), streams_(streams), names_(names) {
    for (const CollectiveStream* stream : streams) graphs_.try_emplace(stream, TaskGraph());
    for (auto& [stream, graph] : graphs_) graph = graph_of(*stream);
  }

  void run() {
    std::vector<Actor> actors;
    for (const CollectiveStream* stream : streams_) actors.push_back({&graphs_.at(stream), {}});
    PlaybackRules rules{.on_meeting = [this](std::span<const ActorTask> tasks) { compare(tasks); }, .keep_times = false};
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      for (int q = 0; q < CollectiveCall::queues; ++q) {
        const Queue queue = Queue::communication(q % Mesh::max_axes, static_cast<Lane>(q / Mesh::max_axes));
        std::vector<QueueEnd> ends;
        for (const End& end : ends_of(mesh_, rank, queue)) ends.push_back({end.rank, static_cast<int>(slot_of(end.queue))});
        if (!ends.empty()) rules.meetings.push_back(std::move(ends));
      }
    }
    std::string stuck;
    for (const ActorTask& task : play(actors, rules).stuck) stuck += "\n  " + name(task.actor) + " at " + call(task).text;
    if (!stuck.empty()) throw ProgramError("the ranks block each other:" + stuck);
  }

 private:
  const CollectiveCall& call(const ActorTask& task) const {
    return (*streams_[static_cast<std::size_t>(task.actor)])[static_cast<std::size_t>(task.task)];
  }
  std::string name(int rank) const {
    return "rank " + std::to_string(names_.empty() ? rank : names_[static_cast<std::size_t>(rank)]);
  }
  void compare(std::span<const ActorTask> tasks) const {
    const CollectiveCall& mine = call(tasks.front());
    for (const ActorTask& task : tasks) {
      const CollectiveCall& theirs = call(task);
      if (theirs.what == mine.what) continue;
      throw ProgramError(name(tasks.front().actor) + " and " + name(task.actor) + ", on axis '" +
                         mesh_.axis(mine.queue.axis()).name + "', meet in different collectives:\n  " +
                         name(tasks.front().actor) + ": " + mine.text + "\n  " + name(task.actor) + ": " + theirs.text);
    }
  }

  const Mesh& mesh_;
  std::span<const CollectiveStream* const> streams_;
  std::span<const int> names_;
  std::map<const CollectiveStream*, TaskGraph> graphs_;
};

}  // namespace

void verify_streams(const Mesh& mesh, std::span<const CollectiveStream* const> streams, std::span<const int> names) {
  if (static_cast<int>(streams.size()) != mesh.ranks())
    throw ProgramError("the collectives of every rank of the mesh are needed: there are " + std::to_string(streams.size()) +
                       " for " + std::to_string(mesh.ranks()) + " ranks");
  Meetings(mesh, streams, names).run();
}

void verify_collectives(std::span<const Program* const> programs) {
  if (programs.empty()) return;
  std::vector<CollectiveStream> streams;
  for (const Program* program : programs) streams.push_back(collective_stream(*program));
  std::vector<const CollectiveStream*> pointers;
  for (const CollectiveStream& stream : streams) pointers.push_back(&stream);
  verify_streams(programs[0]->mesh, pointers);
}

}  // namespace consist
