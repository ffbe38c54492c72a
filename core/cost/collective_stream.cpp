#include "core/cost/collective_stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "consist/error.h"
#include "consist/op.h"
#include "consist/wire.h"
#include "core/base/sha256.h"
#include "core/cost/playback.h"
#include "core/program/content.h"
#include "core/program/operands.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"

namespace consist {
namespace {

using Before = CollectiveCall::Before;

bool is_message(const Instruction& i) {
  return i.op->movement() == Movement::send || i.op->movement() == Movement::receive;
}

/// Ranks with tokens in different orders would exchange them without an error.
std::string order_of(const Program& program) {
  return program.zigzag == 0 ? "" : ", of a sequence in zigzag order over " + std::to_string(program.zigzag);
}

/// Names belong to it: two gradients of one size that change places would be summed without an error. Over the axis of pipeline
/// stages the members of a collective name their tensors by themselves.
std::string describe_call(const Program& program, const Instruction& i) {
  // The two ends of a message have different ops and lanes.
  std::string what = is_message(i) ? "message" : std::string(i.op->name()) + " " + i.attributes.key();
  const bool named = is_message(i) || !i.queue.axes().intersects(program.stage_axis);
  for (TensorId id : i.inputs.empty() ? i.outputs : i.inputs) {
    if (id == no_tensor) continue;
    const Tensor& t = program[id];
    what +=
        ";" + (named ? t.name : std::string()) + " " + std::string(name_of(t.dtype)) + " " + std::to_string(program.bytes(id));
  }
  return what + order_of(program);
}

void take_later(Before& before, const Before& other) {
  for (std::size_t q = 0; q < before.size(); ++q) before[q] = std::max(before[q], other[q]);
}

}  // namespace

CollectiveStream collective_stream(const Program& program) {
  const QueueTable all(program);
  std::vector<Queue> of_calls;
  for (const Queue queue : all) {
    if (queue.is_communication()) of_calls.push_back(queue);
  }
  CollectiveStream stream{QueueTable(std::move(of_calls)), {}};
  std::vector<Before> over;                        // by instruction: calls that are over when it is
  std::vector<std::int64_t> last(all.size(), -1);  // by queue: its newest instruction
  over.reserve(program.instructions.size());
  for (std::size_t index = 0; index < program.instructions.size(); ++index) {
    const Instruction& i = program.instructions[index];
    const std::size_t queue = all.number_of(i.queue);
    Before mine = last[queue] >= 0 ? over[static_cast<std::size_t>(last[queue])] : Before(stream.queues.size(), 0);
    for (InstructionId wait : i.waits) take_later(mine, over.at(static_cast<std::size_t>(wait)));
    last[queue] = static_cast<std::int64_t>(index);
    if (i.op->is_collective()) {
      stream.calls.push_back({i.queue, describe_call(program, i), to_text(program, static_cast<InstructionId>(index)) + order_of(program), mine});
      ++mine[stream.queues.number_of(i.queue)];
    }
    over.push_back(std::move(mine));
  }
  return stream;
}

namespace {

void write(network::WireWriter& bytes, Queue queue) {
  bytes.integer(static_cast<std::int8_t>(queue.kind()))
      .integer(static_cast<std::int8_t>(queue.lane()))
      .integer(static_cast<std::int64_t>(queue.axes().bits()));
}

Queue read_queue(network::WireReader& bytes) {
  const auto kind = static_cast<Queue::Kind>(bytes.integer<std::int8_t>());
  const auto lane = static_cast<int>(bytes.integer<std::int8_t>());
  const AxisSet axes = AxisSet::of_bits(static_cast<std::uint64_t>(bytes.integer<std::int64_t>()));
  if (kind == Queue::Kind::compute) return Queue::compute();
  if (kind == Queue::Kind::host_to_device) return Queue::host_to_device();
  if (kind == Queue::Kind::device_to_host) return Queue::device_to_host();
  if (kind != Queue::Kind::communication || lane < 0 || lane >= lanes)
    throw DataError("a rank's stream of collectives names an unknown queue");
  return Queue::communication(axes, static_cast<Lane>(lane));
}

/// The table, then by call its queue's number and the counts of all queues.
void write_queues(network::WireWriter& bytes, const QueueTable& queues) {
  bytes.integer(static_cast<std::int32_t>(queues.size()));
  for (const Queue queue : queues) write(bytes, queue);
}

}  // namespace

std::string fingerprint_of(const CollectiveStream& stream) {
  Sha256 hash;
  const auto update = [&](network::WireWriter& bytes) {
    const std::string text = bytes.take();
    hash.update(text.data(), text.size());
  };
  network::WireWriter table;
  write_queues(table, stream.queues);
  update(table);
  for (const CollectiveCall& call : stream.calls) {
    network::WireWriter bytes;
    write(bytes, call.queue);
    bytes.text(call.what);
    for (std::int32_t count : call.before) bytes.integer(count);
    update(bytes);
  }
  return hash.hex();
}

std::string encode(const CollectiveStream& stream) {
  network::WireWriter bytes;
  write_queues(bytes, stream.queues);
  for (const CollectiveCall& call : stream.calls) {
    write(bytes, call.queue);
    bytes.text(call.what).text(call.text);
    for (std::int32_t count : call.before) bytes.integer(count);
  }
  return bytes.take();
}

CollectiveStream decode_stream(std::string_view bytes) {
  network::WireReader reader(bytes);
  std::vector<Queue> queues;
  for (auto left = reader.integer<std::int32_t>(); left > 0; --left) queues.push_back(read_queue(reader));
  CollectiveStream stream{QueueTable(std::move(queues)), {}};
  while (!reader.at_end()) {
    CollectiveCall call{read_queue(reader), "", "", Before(stream.queues.size())};
    if (!call.queue.is_communication() || !stream.queues.contains(call.queue))
      throw DataError("a rank's stream of collectives names an unknown queue");
    call.what = reader.text();
    call.text = reader.text();
    for (std::int32_t& count : call.before) count = reader.integer<std::int32_t>();
    stream.calls.push_back(std::move(call));
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
  const std::vector<int> group = mesh.group(rank, queue.axes());
  const int at = mesh.coordinate(rank, queue.axes()), n = static_cast<int>(group.size());
  std::vector<End> ends;
  if (queue.lane() == Lane::collective) {
    for (int member : at == 0 ? group : std::vector<int>{}) ends.push_back({member, queue});
  } else if (queue.lane() == Lane::to_next || queue.lane() == Lane::to_previous) {
    const int to = (at + (queue.lane() == Lane::to_next ? 1 : n - 1)) % n;
    ends = {{rank, queue}, {group[static_cast<std::size_t>(to)], Queue::communication(queue.axes(), opposite(queue.lane()))}};
  }
  return ends;
}

/// A stream as tasks, one for each call, on queues as `all` numbers them.
TaskGraph graph_of(const CollectiveStream& stream, const QueueTable& all) {
  TaskGraph graph;
  std::vector<std::vector<TaskId>> of_queue(stream.queues.size());
  for (const CollectiveCall& call : stream.calls) {
    const std::size_t own = stream.queues.number_of(call.queue);
    std::vector<TaskId> waits;
    for (std::size_t q = 0; q < call.before.size(); ++q) {
      // Calls that do not come before it are waited for in vain.
      if (call.before[q] > 0 && q != own) {
        const auto newest = static_cast<std::size_t>(call.before[q]);
        if (newest > of_queue.at(q).size()) throw ProgramError("a call waits for calls that come behind it: " + call.text);
        waits.push_back(of_queue[q][newest - 1]);
      }
    }
    of_queue[own].push_back(graph.add(static_cast<int>(all.number_of(call.queue)), waits));
  }
  return graph;
}

/// All communication queues that some stream names, and the other ends of their messages.
QueueTable queues_of(const Mesh& mesh, std::span<const CollectiveStream* const> streams) {
  std::vector<Queue> queues;
  for (const CollectiveStream* stream : streams) {
    for (const Queue queue : stream->queues) {
      if (!queue.is_communication()) continue;
      if (queue.axes().empty() || !mesh.all_axes().contains(queue.axes()))
        throw ProgramError("a rank has collectives over '" + mesh.text(queue.axes()) + "', which the mesh does not have");
      queues.push_back(queue);
      if (queue.lane() == Lane::collective) continue;
      for (int lane = 1; lane < lanes; ++lane) queues.push_back(Queue::communication(queue.axes(), static_cast<Lane>(lane)));
    }
  }
  return QueueTable(std::move(queues));
}

/// Plays the streams of all ranks, in which nothing takes time.
class Meetings {
 public:
  Meetings(const Mesh& mesh, std::span<const CollectiveStream* const> streams, std::span<const int> names)
      : mesh_(mesh), streams_(streams), names_(names), queues_(queues_of(mesh, streams)) {
    for (const CollectiveStream* stream : streams) graphs_.try_emplace(stream, TaskGraph());
    for (auto& [stream, graph] : graphs_) graph = graph_of(*stream, queues_);
  }

  void run() {
    std::vector<Actor> actors;
    for (const CollectiveStream* stream : streams_) actors.push_back({&graphs_.at(stream), {}});
    PlaybackRules rules{.on_meeting = [this](std::span<const ActorTask> tasks) { compare(tasks); }, .keep_times = false};
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      for (const Queue queue : queues_) {
        if (!queue.is_communication()) continue;
        std::vector<QueueEnd> ends;
        for (const End& end : ends_of(mesh_, rank, queue))
          ends.push_back({end.rank, static_cast<int>(queues_.number_of(end.queue))});
        if (!ends.empty()) rules.meetings.push_back(std::move(ends));
      }
    }
    std::string stuck;
    for (const ActorTask& task : play(actors, rules).stuck) stuck += "\n  " + name(task.actor) + " at " + call(task).text;
    if (!stuck.empty()) throw ProgramError("the ranks block each other:" + stuck);
  }

 private:
  const CollectiveCall& call(const ActorTask& task) const {
    return streams_[static_cast<std::size_t>(task.actor)]->calls[static_cast<std::size_t>(task.task)];
  }
  std::string name(int rank) const {
    return "rank " + std::to_string(names_.empty() ? rank : names_[static_cast<std::size_t>(rank)]);
  }
  void compare(std::span<const ActorTask> tasks) const {
    const CollectiveCall& mine = call(tasks.front());
    for (const ActorTask& task : tasks) {
      const CollectiveCall& theirs = call(task);
      if (theirs.what == mine.what) continue;
      throw ProgramError(name(tasks.front().actor) + " and " + name(task.actor) + ", on axis '" + mesh_.text(mine.queue.axes()) +
                         "', meet in different collectives:\n  " + name(tasks.front().actor) + ": " + mine.text + "\n  " +
                         name(task.actor) + ": " + theirs.text);
    }
  }

  const Mesh& mesh_;
  std::span<const CollectiveStream* const> streams_;
  std::span<const int> names_;
  QueueTable queues_;
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
  std::map<std::uint64_t, CollectiveStream> streams;  // most ranks do the same
  std::vector<const CollectiveStream*> pointers;
  for (const Program* program : programs) {
    const auto [stream, added] = streams.try_emplace(content_of_any_rank(*program));
    if (added) stream->second = collective_stream(*program);
    pointers.push_back(&stream->second);
  }
  verify_streams(programs[0]->mesh, pointers);
}

}  // namespace consist
