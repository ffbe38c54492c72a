#include "plugins/strategies/common/turns.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/op.h"

namespace consist::strategies {
namespace {

constexpr int of_all = -1;  // an instruction that belongs to no slice, or to several

bool is_between_stages(const Instruction& i) {
  return i.op->movement() == Movement::send || i.op->movement() == Movement::receive;
}

/// The slice of the batch that each instruction of a step works on. A mistake costs time alone: order follows from memory.
class Labels {
 public:
  explicit Labels(const Program& step) : of_tensor_(step.tensors.size(), of_all) {
    for (const Instruction& i : step.instructions) {
      if (!i.op->touches_memory() && i.attributes.has("parts"))
        parts_ = std::max(parts_, static_cast<int>(i.attributes.integer("parts")));
    }
    of_instruction_.reserve(step.instructions.size());
    for (const Instruction& i : step.instructions) of_instruction_.push_back(parts_ > 1 ? label(step, i) : of_all);
  }
  int parts() const { return parts_; }
  int operator[](std::size_t instruction) const { return of_instruction_[instruction]; }

 private:
  int label(const Program& step, const Instruction& i) {
    if (!i.op->touches_memory() && i.attributes.has("parts")) {
      for (std::size_t k = 0; k < i.outputs.size(); ++k) of_tensor_[at(i.outputs[k])] = static_cast<int>(k);
      return of_all;
    }
    // Stages send the slices of a tensor one after the other.
    if (i.op->movement() == Movement::receive && step[i.outputs[0]].shape.rank() > 1)
      return of_tensor_[at(i.outputs[0])] = received_++ % parts_;
    std::vector<bool> added_to(i.inputs.size(), false);
    for (std::size_t k = 0; k < i.outputs.size(); ++k) {
      const int slot = i.op->updates_in_place(static_cast<int>(k));
      if (i.inputs.size() > 1 && slot >= 0 && static_cast<std::size_t>(slot) < added_to.size())
        added_to[static_cast<std::size_t>(slot)] = true;
    }
    int label = of_all;
    bool several = false;
    for (std::size_t k = 0; k < i.inputs.size(); ++k) {
      if (i.inputs[k] == no_tensor || added_to[k] || of_tensor_[at(i.inputs[k])] == of_all) continue;
      several |= label != of_all && label != of_tensor_[at(i.inputs[k])];
      label = of_tensor_[at(i.inputs[k])];
    }
    if (several) label = of_all;
    for (TensorId output : i.outputs) {
      if (output != no_tensor) of_tensor_[at(output)] = step[output].role == Role::gradient ? of_all : label;
    }
    return label;
  }
  static std::size_t at(TensorId id) { return static_cast<std::size_t>(id); }

  int parts_ = 1, received_ = 0;
  std::vector<int> of_tensor_, of_instruction_;
};

/// Consecutive instructions of a step, of one phase of one micro-batch and stage.
class Stretch {
 public:
  /// Instructions `first` to before `end` of the step.
  Stretch(const Program& step, const Labels& labels, std::size_t first, std::size_t end)
      : step_(step),
        first_(first),
        count_(end - first),
        label_(count_),
        before_(count_),
        behind_(count_),
        emitted_(count_, false),
        missing_(count_, 0),
        streams_(static_cast<std::size_t>(labels.parts())),
        fresh_(streams_.size()),
        next_(streams_.size(), 0) {
    for (std::size_t i = 0; i < count_; ++i) {
      label_[i] = labels[first + i];
      if (label_[i] == of_all) continue;
      streams_[static_cast<std::size_t>(label_[i])].push_back(i);
      ++left_;
    }
    find_dependencies();
  }

  /// Its instructions, as indices in the step.
  std::vector<std::size_t> run() {
    emit_passed();
    std::size_t turn = 0, in_vain = 0;
    while (left_ > 0) {
      if (in_vain > 2 * streams_.size()) throw ProgramError("parts of a batch wait for each other");
      in_vain = take_turn(turn, in_vain >= streams_.size()) ? 0 : in_vain + 1;
      turn = (turn + 1) % streams_.size();
    }
    emit_passed();
    return std::move(order_);
  }

 private:
  const Instruction& at(std::size_t i) const { return step_.instructions[first_ + i]; }

  void find_dependencies() {
    struct Uses {
      std::ptrdiff_t writer = -1;
      std::vector<std::size_t> readers;
    };
    std::map<TensorId, Uses> uses;  // by storage
    std::map<Queue, std::size_t> last_between_stages;
    for (std::size_t i = 0; i < count_; ++i) {
      const auto follows = [&](std::size_t other) {
        if (other != i) before_[i].push_back(other);
      };
      for (TensorId id : at(i).inputs) {
        if (id == no_tensor) continue;
        Uses& of = uses[step_[id].storage];
        if (of.writer >= 0) follows(static_cast<std::size_t>(of.writer));
        of.readers.push_back(i);
      }
      for (TensorId id : at(i).outputs) {
        if (id == no_tensor) continue;
        Uses& of = uses[step_[id].storage];
        if (of.writer >= 0) follows(static_cast<std::size_t>(of.writer));
        for (std::size_t reader : of.readers) follows(reader);
        of.writer = static_cast<std::ptrdiff_t>(i);
        of.readers.clear();
      }
      if (is_between_stages(at(i))) {
        const auto [last, first] = last_between_stages.try_emplace(at(i).queue, i);
        if (!first) follows(std::exchange(last->second, i));
      }
      std::ranges::sort(before_[i]);
      before_[i].erase(std::unique(before_[i].begin(), before_[i].end()), before_[i].end());
      missing_[i] = before_[i].size();
      for (std::size_t other : before_[i]) behind_[other].push_back(i);
    }
  }

  /// Emits what the slice can compute until it would wait for a message that nothing has overlapped. True if it emitted any.
  bool take_turn(std::size_t part, bool waiting_is_fine) {
    bool any = false;
    std::size_t& next = next_[part];
    for (; next < streams_[part].size(); ++next) {
      const std::size_t i = streams_[part][next];
      if (emitted_[i]) continue;
      if (!can_emit(i, part)) break;
      const bool waits = !at(i).op->is_collective() && std::ranges::any_of(before_[i], [&](std::size_t other) {
        return std::ranges::count(fresh_[part], other) != 0;
      });
      if (waits && !waiting_is_fine && others_left(part)) break;
      emit(i);
      emit_passed();
      any = true;
    }
    return any;
  }
  bool others_left(std::size_t part) const {
    for (std::size_t k = 0; k < streams_.size(); ++k) {
      if (k == part) continue;
      for (std::size_t n = next_[k]; n < streams_[k].size(); ++n) {
        if (!emitted_[streams_[k][n]]) return true;
      }
    }
    return false;
  }

  /// True if all inputs of `i` exist, or can be made without another slice.
  bool can_emit(std::size_t i, std::size_t part) const {
    return std::ranges::all_of(
        before_[i], [&](std::size_t other) { return emitted_[other] || (label_[other] == of_all && can_emit(other, part)); });
  }

  void emit(std::size_t i) {
    if (emitted_[i]) return;
    for (std::size_t other : before_[i]) emit(other);
    if (emitted_[i]) return;  // as a message that could start by then
    emitted_[i] = true;
    if (label_[i] != of_all) --left_;
    order_.push_back(first_ + i);
    const bool computes = at(i).op->touches_memory() && !at(i).op->is_collective();
    for (std::size_t k = 0; k < fresh_.size(); ++k) {
      const bool own = label_[i] == static_cast<int>(k);
      if (own && at(i).op->is_collective()) fresh_[k].push_back(i);
      if (!own && computes && label_[i] != of_all) fresh_[k].clear();
    }
    for (std::size_t reader : behind_[i]) {
      if (--missing_[reader] != 0 || emitted_[reader] || label_[reader] == of_all) continue;
      if (at(reader).op->is_collective() && !is_between_stages(at(reader))) emit(reader);
    }
  }

  /// Emits instructions that belong to all slices, each after those that it came after.
  void emit_passed() {
    std::size_t first_left = count_;
    for (std::size_t k = 0; k < streams_.size(); ++k) {
      const auto left = std::find_if(streams_[k].begin() + static_cast<std::ptrdiff_t>(next_[k]), streams_[k].end(),
                                     [&](std::size_t i) { return !emitted_[i]; });
      if (left != streams_[k].end()) first_left = std::min(first_left, *left);
    }
    for (; passed_ < first_left; ++passed_) emit(passed_);
  }

  const Program& step_;
  std::size_t first_, count_;
  std::vector<int> label_;
  std::vector<std::vector<std::size_t>> before_, behind_;  // by instruction: those that it needs, and those that need it
  std::vector<bool> emitted_;
  std::vector<std::size_t> missing_;               // by instruction: number of those it needs that are not emitted
  std::vector<std::vector<std::size_t>> streams_;  // by slice: its instructions
  std::vector<std::vector<std::size_t>> fresh_;    // by slice: its messages that nothing overlaps yet
  std::vector<std::size_t> next_;                  // by slice: its first instruction that may not be emitted
  std::size_t left_ = 0, passed_ = 0;              // number of slices' instructions not emitted; all before `passed_` are
  std::vector<std::size_t> order_;
};

}  // namespace

void take_turns(Program& step) {
  const Labels labels(step);
  if (labels.parts() < 2) return;
  std::vector<std::size_t> order;
  order.reserve(step.instructions.size());
  const auto together = [&](std::size_t a, std::size_t b) {
    const Tag &one = step.instructions[a].tag, &other = step.instructions[b].tag;
    return one.micro_batch == other.micro_batch && one.stage == other.stage &&
           (one.phase == Phase::forward) == (other.phase == Phase::forward);
  };
  for (std::size_t first = 0, end = 0; first < step.instructions.size(); first = end) {
    for (end = first + 1; end < step.instructions.size() && together(first, end); ++end) {
    }
    for (std::size_t i : Stretch(step, labels, first, end).run()) order.push_back(i);
  }
  std::vector<Instruction> ordered;
  ordered.reserve(order.size());
  for (std::size_t i : order) ordered.push_back(std::move(step.instructions[i]));
  step.instructions = std::move(ordered);
}

}  // namespace consist::strategies
