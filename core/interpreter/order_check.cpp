#include "core/interpreter/order_check.h"

#include <algorithm>
#include <array>
#include <map>

#include "consist/op.h"
#include "core/cost/collective_stream.h"
#include "core/program/content.h"

namespace consist::interpreter {
namespace {

constexpr std::size_t most_violations = 8;

/// By queue in use: the latest instruction that is over, -1 for none.
using Clock = std::vector<InstructionId>;

/// Vector clocks: the instructions that are over when each one of two steps starts, itself included from then on. Those of the
/// second step are counted on behind those of the first.
class HappensBefore {
 public:
  HappensBefore(const Program& program, JoinsQueue joins)
      : count_(static_cast<InstructionId>(program.instructions.size())), queues_(program) {
    std::vector<InstructionId> newest(queues_.size(), -1);
    clocks_.reserve(2 * program.instructions.size());
    Clock begin(queues_.size(), -1);  // of the step
    for (InstructionId first : {InstructionId{0}, count_}) {
      for (std::size_t index = 0; index < program.instructions.size(); ++index) {
        const Instruction& i = program.instructions[index];
        Clock clock = begin;
        InstructionId& before = newest[slot_of(i.queue)];
        if (before >= 0) join(clock, before, i.queue);
        for (const InstructionId wait : i.waits)
          join(clock, first + wait, program.instructions[static_cast<std::size_t>(wait)].queue);
        clocks_.push_back(std::move(clock));
        before = first + static_cast<InstructionId>(index);
      }
      for (const Queue queue : queues_) {
        const InstructionId last = newest[slot_of(queue)];
        if (last >= 0 && joins(queue)) join(begin, last, queue);
      }
    }
  }

  std::size_t slot_of(Queue queue) const { return queues_.number_of(queue); }
  /// True if `first`, of `queue`, is over when `then` starts.
  bool ordered(InstructionId first, Queue queue, InstructionId then) const {
    return clocks_[static_cast<std::size_t>(then)][slot_of(queue)] >= first;
  }

 private:
  void join(Clock& clock, InstructionId other, Queue queue) const {
    const Clock& known = clocks_.at(static_cast<std::size_t>(other));  // throws for a wait for a later instruction
    for (std::size_t q = 0; q < clock.size(); ++q) clock[q] = std::max(clock[q], known[q]);
    clock[slot_of(queue)] = std::max(clock[slot_of(queue)], other);
  }

  InstructionId count_;
  QueueTable queues_;
  std::vector<Clock> clocks_;
};

/// A stretch of memory whose bytes have one history.
struct Segment {
  std::int64_t end;
  InstructionId writer = -1;
  TensorId storage = no_tensor;             ///< that it was written as; no_tensor: scratch, or nobody has written
  std::vector<InstructionId> readers = {};  ///< since, the newest of each queue
};

class Sweep {
 public:
  Sweep(const Planned& planned, JoinsQueue joins)
      : planned_(planned), program_(planned.program), order_(planned.program, joins) {}

  OrderReport run() {
    sweep(0);
    sweep(static_cast<InstructionId>(program_.instructions.size()));
    return std::move(report_);
  }

 private:
  using Segments = std::map<std::int64_t, Segment>;  // by begin; they never overlap

  /// A step whose instructions are counted from `first` on.
  void sweep(InstructionId first) {
    for (std::size_t index = 0; index < program_.instructions.size(); ++index) {
      const InstructionId at = first + static_cast<InstructionId>(index);
      const Instruction& i = program_.instructions[index];
      if (!i.op->touches_memory()) {
        if (i.op->name() == "release" && first == 0) check_release(at);
        continue;
      }
      visit(i, i.inputs, [&](TensorId, const Stretch& bytes) { read(at, bytes); });
      visit(i, i.outputs, [&](TensorId id, const Stretch& bytes) { write(at, bytes, program_[id].storage); });
      const std::int64_t scratch = planned_.plan.workspace[index];
      if (scratch >= 0) write(at, {MemorySpace::device, scratch, scratch + planned_.workspaces[index]}, no_tensor);
    }
  }

  template <typename Visit>
  void visit(const Instruction& i, const std::vector<TensorId>& tensors, const Visit& visit) const {
    for (const TensorId id : tensors) {
      if (id == no_tensor) continue;
      for (const Stretch& bytes : stretches(planned_, i, id)) {
        if (bytes.begin < bytes.end) visit(id, bytes);
      }
    }
  }

  InstructionId in_program(InstructionId i) const { return i % static_cast<InstructionId>(program_.instructions.size()); }
  const Instruction& instruction(InstructionId i) const { return program_.instructions[static_cast<std::size_t>(in_program(i))]; }
  Queue queue_of(InstructionId i) const { return instruction(i).queue; }
  std::string place(InstructionId i) const {
    return place_of(program_, in_program(i)) + (i == in_program(i) ? "" : " of the next step");
  }

  /// The first segment of `bytes`; afterwards segments begin and end there, and none is missing in between.
  Segments::iterator cut(const Stretch& bytes) {
    Segments& segments = spaces_[static_cast<std::size_t>(bytes.space)];
    split(segments, bytes.begin);
    split(segments, bytes.end);
    for (std::int64_t at = bytes.begin; at < bytes.end;) {
      const auto next = segments.lower_bound(at);
      if (next == segments.end() || next->first > at) {
        const std::int64_t end = next == segments.end() ? bytes.end : std::min(bytes.end, next->first);
        segments.emplace_hint(next, at, Segment{end});
        at = end;
      } else {
        at = next->second.end;
      }
    }
    return segments.find(bytes.begin);
  }

  static void split(Segments& segments, std::int64_t at) {
    const auto next = segments.lower_bound(at);
    if (next == segments.begin()) return;
    Segment& before = std::prev(next)->second;
    if (before.end <= at) return;
    Segment right = before;
    before.end = at;
    segments.emplace_hint(next, at, std::move(right));
  }

  void read(InstructionId reader, const Stretch& bytes) {
    for (auto s = cut(bytes); s != end_of(bytes) && s->first < bytes.end; ++s) {
      expect_ordered(s->second.writer, reader, "reads what it writes", {bytes.space, s->first, s->second.end});
      std::vector<InstructionId>& readers = s->second.readers;
      const auto same =
          std::find_if(readers.begin(), readers.end(), [&](InstructionId r) { return queue_of(r) == queue_of(reader); });
      if (same == readers.end())
        readers.push_back(reader);
      else
        *same = reader;
    }
  }

  void write(InstructionId writer, const Stretch& bytes, TensorId storage) {
    for (auto s = cut(bytes); s != end_of(bytes) && s->first < bytes.end; ++s) {
      const Stretch here{bytes.space, s->first, s->second.end};
      expect_ordered(s->second.writer, writer, "writes what it writes", here);
      for (const InstructionId reader : s->second.readers) expect_ordered(reader, writer, "writes what it reads", here);
      s->second = {s->second.end, writer, storage};
    }
  }

  /// Checks that the memory still holds what the instructions before have left.
  void check_release(InstructionId release) {
    const Instruction& i = instruction(release);
    visit(i, i.inputs, [&](TensorId id, const Stretch& bytes) {
      for (auto s = cut(bytes); s != end_of(bytes) && s->first < bytes.end; ++s) {
        if (s->second.writer < 0 || s->second.storage == program_[id].storage) continue;
        add(place(s->second.writer) + "\n writes the memory of '" + program_[id].name + "', " +
            text_of({bytes.space, s->first, s->second.end}) + ", before\n" + place(release) + "\n gives it away");
      }
    });
  }

  Segments::iterator end_of(const Stretch& bytes) { return spaces_[static_cast<std::size_t>(bytes.space)].end(); }

  void expect_ordered(InstructionId first, InstructionId then, const char* what, const Stretch& bytes) {
    if (first < 0 || first == then || queue_of(first) == queue_of(then)) return;
    if (first != in_program(first)) return;  // within the second step everything is as within the first
    ++report_.conflicts;
    if (order_.ordered(first, queue_of(first), then)) return;
    add(place(then) + "\n " + what + ", " + text_of(bytes) + ", without waiting for\n" + place(first));
  }

  static std::string text_of(const Stretch& bytes) {
    return "bytes [" + std::to_string(bytes.begin) + ", " + std::to_string(bytes.end) + ") of the " +
           std::string(name_of(bytes.space)) + "'s memory";
  }

  void add(std::string violation) {
    if (report_.violations.size() < most_violations) report_.violations.push_back(std::move(violation));
  }

  const Planned& planned_;
  const Program& program_;
  HappensBefore order_;
  std::array<Segments, memory_spaces> spaces_;
  OrderReport report_;
};

}  // namespace

OrderReport check_order(const Planned& planned, JoinsQueue joins) {
  return Sweep(planned, joins).run();
}

namespace {

/// A program and the pairs that were looked at in it, which stand for each rank that does the same at the same addresses.
struct Checked {
  std::uint64_t content;
  const Planned* planned;
  std::int64_t conflicts;

  bool holds_for(std::uint64_t of, const Planned& other) const {
    return content == of && planned->plan.address == other.plan.address && planned->plan.workspace == other.plan.workspace &&
           planned->workspaces == other.workspaces;
  }
};

}  // namespace

std::int64_t check_ranks(std::span<const Planned> programs, std::vector<std::string>& wrong) {
  std::int64_t conflicts = 0;
  std::vector<Checked> checked;
  std::vector<const Program*> pointers;
  for (const Planned& planned : programs) {
    const std::uint64_t content = content_of_any_rank(planned.program);
    auto known = std::ranges::find_if(checked, [&](const Checked& c) { return c.holds_for(content, planned); });
    if (known == checked.end()) {
      const OrderReport report = check_order(planned);
      wrong.insert(wrong.end(), report.violations.begin(), report.violations.end());
      known = checked.insert(known, {content, &planned, report.conflicts});
    }
    conflicts += known->conflicts;
    pointers.push_back(&planned.program);
  }
  verify_collectives(pointers);
  return conflicts;
}

}  // namespace consist::interpreter
