#include "consist/rewrite.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "consist/analysis.h"
#include "consist/cost.h"
#include "consist/edit.h"
#include "consist/op.h"

namespace consist {
namespace {

class Delay {
 public:
  Delay(const Program& step, std::span<const TensorId> gradients, const Reduction& reduction)
      : step_(step), costs_(costs_of(step)), reduction_(reduction), writers_(last_writers(step)) {
    for (TensorId gradient : gradients) {
      gradients_.insert(storage(gradient));
      if (last_ == no_tensor || writer(gradient) > writer(last_)) last_ = gradient;
    }
    for (const Tensor& tensor : step.tensors) {
      if (tensor.recomputed) recomputed_.insert(tensor.storage);
    }
  }

  /// Returns the instructions to move behind end(), in the order of the program.
  std::vector<InstructionId> run() {
    std::vector<InstructionId> moved;
    if (last_ == no_tensor || writer(last_) < 0 || at(end()).op->makes_weight_gradients()) return moved;
    double missing = send_seconds(last_) + seconds_of_rest(last_);
    note(at(end()));
    for (InstructionId i = end() - 1; i >= 0 && missing > 0; --i) {
      const Instruction& instruction = at(i);
      if (instruction.queue != Queue::compute() || instruction.tag.phase != Phase::backward ||
          instruction.tag.micro_batch != at(end()).tag.micro_batch)
        break;
      const double gain = can_move(instruction) ? gain_of(instruction) : 0;
      if (gain > 0) {
        missing -= gain;
        moved.push_back(i);
      } else {
        note(instruction);
      }
    }
    std::reverse(moved.begin(), moved.end());
    return moved;
  }
  InstructionId end() const { return writer(last_); }

 private:
  TensorId storage(TensorId id) const { return step_[id].storage; }
  InstructionId writer(TensorId id) const { return writers_[static_cast<std::size_t>(id)]; }
  const Instruction& at(InstructionId i) const { return step_.instructions[static_cast<std::size_t>(i)]; }
  double send_seconds(TensorId gradient) const {
    const auto width = static_cast<std::int64_t>(size_of(reduction_.reduce_dtype.value_or(step_[gradient].dtype)));
    const std::int64_t bytes = step_.local(gradient).elements() * width;
    return seconds_of(*reduction_.collective, bytes, reduction_.axes);
  }
  double seconds_of(const Op& collective, std::int64_t bytes, AxisSet axes) const {
    return costs_.transfer_seconds(collective, static_cast<double>(collective.bytes_sent(bytes, step_.mesh.size_of(axes))), axes);
  }
  /// Seconds until the gradient's slices are summed along the axes that another strategy reduces later, between replicas.
  double seconds_of_rest(TensorId gradient) const {
    static const Op& all_reduce = registry().get("all_reduce");
    const AxisSet rest = axes_with(step_[gradient], Placement::partial(), step_.mesh.all_axes().without(reduction_.axes));
    if (rest.empty() || reduction_.collective->movement() != Movement::reduce_scatter) return 0;
    return seconds_of(all_reduce, step_.bytes(gradient) / step_.mesh.size_of(reduction_.axes), rest);
  }

  /// True if nothing between it and the end reads or writes its outputs, or writes its inputs. Recomputed inputs rule it out:
  /// recomputation must not keep them.
  bool can_move(const Instruction& i) const {
    const auto none = [&](const std::vector<TensorId>& tensors, auto&& touched) {
      return std::none_of(tensors.begin(), tensors.end(), [&](TensorId id) { return id != no_tensor && touched(id); });
    };
    return i.op->makes_weight_gradients() &&
           none(i.inputs, [&](TensorId id) { return written_.contains(storage(id)) || recomputed_.contains(storage(id)); }) &&
           none(i.outputs, [&](TensorId id) {
             return read_.contains(storage(id)) || written_.contains(storage(id)) || !gradients_.contains(storage(id)) ||
                    step_.bytes(id) >= step_.bytes(last_);
           });
  }
  /// Seconds of computing that are left once what it makes is sent, too; 0 if sending is most of it.
  double gain_of(const Instruction& i) const {
    const double making = costs_.seconds(step_, i);
    double gain = making;
    for (TensorId output : i.outputs) {
      if (output != no_tensor) gain -= send_seconds(output);
    }
    return gain > making / 2 ? gain : 0;
  }
  void note(const Instruction& i) {
    for (TensorId input : i.inputs) {
      if (input != no_tensor) read_.insert(storage(input));
    }
    for (TensorId output : i.outputs) {
      if (output != no_tensor) written_.insert(storage(output));
    }
  }

  const Program& step_;
  const CostModel& costs_;
  Reduction reduction_;
  std::vector<InstructionId> writers_;
  std::unordered_set<TensorId> gradients_, recomputed_;  // storages
  std::unordered_set<TensorId> read_, written_;          // storages, by what stays in front of the end
  TensorId last_ = no_tensor;
};

}  // namespace

std::vector<InstructionId> compute_beside_last_reduction(Program& step, std::span<const TensorId> gradients,
                                                         const Reduction& reduction) {
  Delay delay(step, gradients, reduction);
  std::vector<InstructionId> place(step.instructions.size());
  std::iota(place.begin(), place.end(), InstructionId{0});
  const std::vector<InstructionId> moved = delay.run();
  if (moved.empty()) return place;

  std::vector<InstructionId> order;  // old places, from the first that moves to the end
  auto next = moved.begin();
  for (InstructionId i = moved.front(); i <= delay.end(); ++i) {
    if (next != moved.end() && *next == i) {
      ++next;
    } else {
      order.push_back(i);
    }
  }
  order.insert(order.end(), moved.begin(), moved.end());
  std::vector<Instruction> instructions;
  for (InstructionId i : order) instructions.push_back(std::move(step.instructions[static_cast<std::size_t>(i)]));
  for (std::size_t k = 0; k < order.size(); ++k) {
    const InstructionId to = moved.front() + static_cast<InstructionId>(k);
    place[static_cast<std::size_t>(order[k])] = to;
    step.instructions[static_cast<std::size_t>(to)] = std::move(instructions[k]);
  }
  return place;
}

}  // namespace consist
