#include "core/interpreter/interpreter.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/op.h"
#include "core/interpreter/collectives.h"
#include "core/interpreter/compute.h"

namespace consist::interpreter {
namespace {

/// One rank on its way through its program.
class Walk {
 public:
  explicit Walk(Arena& arena) : arena_(arena), done_(arena.planned().program.instructions.size(), false) {
    const std::vector<Instruction>& instructions = program().instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i)
      waiting_[instructions[i].queue].push_back(static_cast<InstructionId>(i));
    for (auto& [queue, waiting] : waiting_) std::reverse(waiting.begin(), waiting.end());
  }

  std::vector<Queue> queues() const {
    std::vector<Queue> queues;
    for (const auto& [queue, waiting] : waiting_) queues.push_back(queue);
    return queues;
  }

  Arena& arena() const { return arena_; }
  const Program& program() const { return arena_.planned().program; }

  /// The instruction at the head of a queue; -1 where the queue is at its end.
  InstructionId head(Queue queue) const {
    const auto waiting = waiting_.find(queue);
    return waiting == waiting_.end() || waiting->second.empty() ? -1 : waiting->second.back();
  }
  /// The head, if all that it waits for is over.
  std::optional<InstructionId> ready(Queue queue) const {
    const InstructionId id = head(queue);
    if (id < 0) return std::nullopt;
    const std::vector<InstructionId>& waits = program().instructions[static_cast<std::size_t>(id)].waits;
    const bool over =
        std::all_of(waits.begin(), waits.end(), [&](InstructionId w) { return done_.at(static_cast<std::size_t>(w)); });
    return over ? std::optional(id) : std::nullopt;
  }
  void finish(Queue queue) {
    done_[static_cast<std::size_t>(head(queue))] = true;
    waiting_.at(queue).pop_back();
  }
  Member member(InstructionId id) const { return {&arena_, id}; }

 private:
  Arena& arena_;
  std::map<Queue, std::vector<InstructionId>> waiting_;  // the next one last
  std::vector<bool> done_;
};

class Lockstep {
 public:
  Lockstep(std::span<Arena* const> ranks, std::uint64_t seed, const StepObserver& after, const StepObserver& before)
      : after_(after), before_(before), random_(seed) {
    for (Arena* arena : ranks) walks_.emplace_back(*arena);
    for (std::size_t rank = 0; rank < walks_.size(); ++rank) {
      for (const Queue queue : walks_[rank].queues()) turns_.push_back({rank, queue});
    }
  }

  void run() {
    while (!turns_.empty()) {
      std::shuffle(turns_.begin(), turns_.end(), random_);
      bool moved = false;
      for (const Turn& turn : turns_) {
        // Some run ahead of the others, by as much as waits let them.
        for (std::uint64_t steps = random_() % 4 == 0 ? 64 : 1; steps > 0 && run_head(turn); --steps) moved = true;
      }
      std::erase_if(turns_, [&](const Turn& t) { return walks_[t.rank].head(t.queue) < 0; });
      if (!moved && !turns_.empty()) throw ProgramError("the ranks block each other:" + heads());
    }
  }

 private:
  struct Turn {
    std::size_t rank;
    Queue queue;
  };

  bool run_head(const Turn& turn) {
    Walk& walk = walks_[turn.rank];
    const std::optional<InstructionId> id = walk.ready(turn.queue);
    if (!id) return false;
    const Instruction& i = walk.program().instructions[static_cast<std::size_t>(*id)];
    if (i.op->is_collective()) {
      if (!i.queue.is_communication()) throw ProgramError(walk.member(*id).text() + " runs on a queue that has no communicator");
      return i.queue.lane() == Lane::collective ? run_group(turn, i.queue) : run_link(turn, i.queue);
    }
    announce(walk.member(*id));
    compute(walk.arena(), *id);
    finish(walk, turn.queue);
    return true;
  }

  bool run_group(const Turn& turn, Queue queue) {
    std::vector<Member> members;
    const std::vector<int> group = walks_[turn.rank].program().mesh.group(static_cast<int>(turn.rank), queue.axes());
    for (const int rank : group) {
      const Walk& walk = walks_.at(static_cast<std::size_t>(rank));
      const std::optional<InstructionId> id = walk.ready(turn.queue);
      if (!id) return false;
      members.push_back(walk.member(*id));
    }
    for (const Member& member : members) announce(member);
    run_collective(members);
    for (const int rank : group) finish(walks_[static_cast<std::size_t>(rank)], turn.queue);
    return true;
  }

  /// A message, from the turn of either end.
  bool run_link(const Turn& turn, Queue queue) {
    const Mesh& mesh = walks_[turn.rank].program().mesh;
    const std::vector<int> group = mesh.group(static_cast<int>(turn.rank), queue.axes());
    const int n = mesh.size_of(queue.axes()), at = mesh.coordinate(static_cast<int>(turn.rank), queue.axes());
    const bool sends = queue.lane() == Lane::to_next || queue.lane() == Lane::to_previous;
    const bool with_next = queue.lane() == Lane::to_next || queue.lane() == Lane::from_next;
    const auto peer = static_cast<std::size_t>(group[static_cast<std::size_t>((at + (with_next ? 1 : n - 1)) % n)]);
    constexpr Lane opposite[] = {Lane::collective, Lane::from_previous, Lane::to_next, Lane::from_next, Lane::to_previous};
    const Queue queue_there = Queue::communication(queue.axes(), opposite[static_cast<int>(queue.lane())]);
    const std::optional<InstructionId> here = walks_[turn.rank].ready(turn.queue), there = walks_.at(peer).ready(queue_there);
    if (!there) return false;
    const Member mine = walks_[turn.rank].member(*here), other = walks_[peer].member(*there);
    announce(mine);
    announce(other);
    run_message(sends ? mine : other, sends ? other : mine);
    finish(walks_[turn.rank], turn.queue);
    finish(walks_[peer], queue_there);
    return true;
  }

  /// Reads of the observer are told as the instruction's own.
  void announce(const Member& member) const {
    if (!before_) return;
    member.arena->set_instruction(member.instruction);
    before_(*member.arena, member.instruction);
  }

  void finish(Walk& walk, Queue queue) {
    if (after_) after_(walk.arena(), walk.head(queue));
    walk.finish(queue);
  }

  std::string heads() const {
    std::string text;
    for (const Turn& turn : turns_) {
      const Walk& walk = walks_[turn.rank];
      text += "\n" + walk.member(walk.head(turn.queue)).text() + (walk.ready(turn.queue) ? "" : " (waits for its own rank)");
    }
    return text;
  }

  const StepObserver &after_, &before_;
  std::mt19937_64 random_;
  std::vector<Walk> walks_;
  std::vector<Turn> turns_;
};

}  // namespace

void run_step(std::span<Arena* const> ranks, std::uint64_t seed, const StepObserver& after, const StepObserver& before) {
  Lockstep(ranks, seed, after, before).run();
}

}  // namespace consist::interpreter
