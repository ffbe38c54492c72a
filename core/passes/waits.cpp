#include "core/passes/waits.h"

#include <algorithm>
#include <array>
#include <map>

#include "consist/op.h"
#include "core/program/places.h"

namespace consist {
namespace {

using Clock = std::array<InstructionId, Queue::count>;  // by queue: the latest instruction known to be finished, -1 none

constexpr Clock never() {
  Clock clock{};
  for (InstructionId& at : clock) at = -1;
  return clock;
}

/// Who touched each address last. Segments never overlap.
class Accesses {
 public:
  /// Notes an access and raises `after` to the instructions that must come before it.
  void access(std::int64_t begin, std::int64_t end, bool write, int queue, InstructionId instruction, Clock& after) {
    split(begin);
    split(end);
    auto segment = segments_.lower_bound(begin);
    std::int64_t covered = begin;
    while (covered < end) {
      if (segment == segments_.end() || segment->first > covered) {  // untouched so far
        const std::int64_t until = segment == segments_.end() ? end : std::min(end, segment->first);
        segment = segments_.emplace_hint(segment, covered, Segment{until});
      }
      Segment& s = segment->second;
      if (s.writer >= 0) raise(after, s.writer_queue, s.writer);
      if (write) {
        for (int q = 0; q < Queue::count; ++q) raise(after, q, s.readers[static_cast<std::size_t>(q)]);
      }
      covered = s.end;
      if (write) {
        segment = segments_.erase(segment);
      } else {
        s.readers[static_cast<std::size_t>(queue)] = instruction;
        ++segment;
      }
    }
    if (write) segments_.emplace_hint(segment, begin, Segment{end, instruction, queue});
  }

 private:
  struct Segment {
    std::int64_t end;
    InstructionId writer = -1;
    int writer_queue = 0;
    Clock readers = never();
  };

  static void raise(Clock& clock, int queue, InstructionId instruction) {
    auto& at = clock[static_cast<std::size_t>(queue)];
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

  std::map<std::int64_t, Segment> segments_;
};

}  // namespace

void insert_waits(Program& program, const MemoryPlan& plan, std::span<const std::int64_t> workspace_bytes) {
  std::array<Accesses, memory_spaces> spaces;
  Clock known_of_queue[Queue::count];  // what the newest instruction of each queue may rely on
  for (Clock& clock : known_of_queue) clock = never();
  std::vector<Clock> known_at(program.instructions.size());  // the same, of every instruction

  for (std::size_t index = 0; index < program.instructions.size(); ++index) {
    Instruction& i = program.instructions[index];
    i.waits.clear();
    if (!i.op->touches_memory()) continue;
    const int queue = i.queue.index();
    Clock after = never();
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
    for (int q = 0; q < Queue::count; ++q) {
      const InstructionId wanted = after[static_cast<std::size_t>(q)];
      if (q == queue || wanted <= known[static_cast<std::size_t>(q)]) continue;
      i.waits.push_back(wanted);
    }
    // Waits that another wait implies: the later one may know of the earlier.
    std::erase_if(i.waits, [&](InstructionId w) {
      return std::any_of(i.waits.begin(), i.waits.end(), [&](InstructionId other) {
        const int q = program.instructions[static_cast<std::size_t>(w)].queue.index();
        return other != w && known_at[static_cast<std::size_t>(other)][static_cast<std::size_t>(q)] >= w;
      });
    });
    for (InstructionId w : i.waits) {
      for (int q = 0; q < Queue::count; ++q) {
        auto& at = known[static_cast<std::size_t>(q)];
        at = std::max(at, known_at[static_cast<std::size_t>(w)][static_cast<std::size_t>(q)]);
      }
    }
    known[static_cast<std::size_t>(queue)] = static_cast<InstructionId>(index);
    known_at[index] = known;
  }
}

}  // namespace consist
