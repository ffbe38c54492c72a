#include "core/lower/waits.h"

#include <algorithm>
#include <map>
#include <vector>

#include "consist/op.h"
#include "consist/places.h"

namespace consist {
namespace {

using Clock = std::vector<InstructionId>;  // by number in the queue table: the latest instruction known to be finished, -1 none

/// The last instructions that touched each address. Segments never overlap.
class Accesses {
 public:
  explicit Accesses(std::size_t queues) : queues_(queues) {}

  /// Notes an access and raises `after` to the instructions that must come before it.
  void access(std::int64_t begin, std::int64_t end, bool write, std::size_t queue, InstructionId instruction, Clock& after) {
    split(begin);
    split(end);
    auto segment = segments_.lower_bound(begin);
    std::int64_t covered = begin;
    while (covered < end) {
      if (segment == segments_.end() || segment->first > covered) {  // untouched so far
        const std::int64_t until = segment == segments_.end() ? end : std::min(end, segment->first);
        segment = segments_.emplace_hint(segment, covered, Segment{until, -1, 0, Clock(queues_, -1)});
      }
      Segment& s = segment->second;
      if (s.writer >= 0) raise(after, s.writer_queue, s.writer);
      if (write) {
        for (std::size_t q = 0; q < queues_; ++q) raise(after, q, s.readers[q]);
      }
      covered = s.end;
      if (write) {
        segment = segments_.erase(segment);
      } else {
        s.readers[queue] = instruction;
        ++segment;
      }
    }
    if (write) segments_.emplace_hint(segment, begin, Segment{end, instruction, queue, Clock(queues_, -1)});
  }

 private:
  struct Segment {
    std::int64_t end;
    InstructionId writer = -1;
    std::size_t writer_queue = 0;
    Clock readers;
  };

  static void raise(Clock& clock, std::size_t queue, InstructionId instruction) {
    auto& at = clock[queue];
    at = std::max(at, instruction);
  }

  void split(std::int64_t at) {
    auto next = segments_.lower_bound(at);
    if (next == segments_.begin()) return;
    auto segment = std::prev(next);
    if (segment->second.end <= at) return;
    Segment right = segment->second;
    segment->second.end = at;
    segments_.emplace_hint(next, at, right);
  }

  std::size_t queues_;
  std::map<std::int64_t, Segment> segments_;
};

}  // namespace

void insert_waits(Program& program, const MemoryPlan& plan, std::span<const std::int64_t> workspace_bytes) {
  const QueueTable queues(program);
  const Clock never(queues.size(), -1);
  std::vector<Accesses> spaces(memory_spaces, Accesses(queues.size()));
  std::vector<Clock> known_of_queue(queues.size(), never);  // what the newest instruction of each queue may rely on
  Clock known_at(program.instructions.size() * queues.size(), -1);  // the same, of every instruction
  const auto known_by = [&](InstructionId of, std::size_t queue) -> InstructionId& {
    return known_at[static_cast<std::size_t>(of) * queues.size() + queue];
  };

  for (std::size_t index = 0; index < program.instructions.size(); ++index) {
    Instruction& i = program.instructions[index];
    i.waits.clear();
    if (!i.op->touches_memory()) continue;
    const std::size_t queue = queues.number_of(i.queue);
    Clock after = never;
    auto access = [&](TensorId id, bool write) {
      if (id == no_tensor) return;
      const std::int64_t begin = plan.address[static_cast<std::size_t>(id)];
      const std::int64_t end = begin + std::max<std::int64_t>(extent_moved(program, i, id), 1);
      spaces[static_cast<std::size_t>(program[id].space)].access(begin, end, write, queue, static_cast<InstructionId>(index),
                                                                 after);
    };
    for (TensorId id : i.inputs) access(id, false);
    for (TensorId id : i.outputs) access(id, true);
    if (plan.workspace[index] >= 0) {
      const std::int64_t begin = plan.workspace[index];
      spaces[0].access(begin, begin + workspace_bytes[index], true, queue, static_cast<InstructionId>(index), after);
    }
    Clock& known = known_of_queue[queue];
    for (std::size_t q = 0; q < queues.size(); ++q) {
      const InstructionId wanted = after[q];
      if (q == queue || wanted <= known[q]) continue;
      i.waits.push_back(wanted);
    }
    // Waits that another wait implies: the later one may know of the earlier.
    std::erase_if(i.waits, [&](InstructionId w) {
      return std::any_of(i.waits.begin(), i.waits.end(), [&](InstructionId other) {
        const std::size_t q = queues.number_of(program.instructions[static_cast<std::size_t>(w)].queue);
        return other != w && known_by(other, q) >= w;
      });
    });
    for (InstructionId w : i.waits) {
      for (std::size_t q = 0; q < queues.size(); ++q) known[q] = std::max(known[q], known_by(w, q));
    }
    known[queue] = static_cast<InstructionId>(index);
    std::copy(known.begin(), known.end(), &known_by(static_cast<InstructionId>(index), 0));
  }
}

}  // namespace consist
