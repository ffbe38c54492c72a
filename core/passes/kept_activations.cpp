#include "core/passes/kept_activations.h"

#include <algorithm>
#include <utility>

#include "consist/op.h"
#include "core/base/index.h"

namespace consist {
namespace {

class Finder {
 public:
  explicit Finder(const Program& step)
      : step_(step),
        made_(step.tensors.size(), no_phase),
        of_weights_(step.tensors.size(), false),
        by_storage_(step.tensors.size()) {
    for (std::size_t t = 0; t < step.tensors.size(); ++t) {
      const Tensor& tensor = step.tensors[t];
      of_weights_[t] = tensor.state || tensor.role == Role::parameter;
    }
  }

  std::vector<Kept> find() {
    for (std::size_t n = 0; n < step_.instructions.size(); ++n) visit(step_.instructions[n], static_cast<InstructionId>(n));
    std::vector<Kept> found;
    for (Use& use : by_storage_) {
      if (!use.crosses || use.returns || use.kept.values.empty() || !use.is_read) continue;
      if (use.kept.written < 0) use.kept.written = use.kept.last_forward;
      found.push_back(std::move(use.kept));
    }
    return found;
  }

 private:
  static constexpr std::int8_t no_phase = -1;

  struct Use {
    Kept kept;
    bool crosses = false;  ///< touched in forward, then in backward
    bool returns = false;  ///< forward touches it after backward did, or backward makes the storage's own tensor
    bool is_read = false;  ///< by an instruction of backward that touches memory, perhaps under another name
    std::size_t run = 0;   ///< of the write: see runs_
  };

  bool can_move(TensorId id) const {
    const Tensor &t = step_[id], &storage = step_[t.storage];
    return !storage.state && !t.state && storage.space == MemorySpace::device &&
           (storage.role == Role::activation || storage.role == Role::workspace) &&
           (t.role == Role::activation || t.role == Role::workspace);
  }

  void visit(const Instruction& i, InstructionId n) {
    const bool forward = i.tag.phase == Phase::forward;
    const std::pair of(i.tag.micro_batch, i.tag.layer);
    if (i.tag.layer >= 0 && i.queue == Queue::compute() && i.op->touches_memory() && runs_.back() != of) runs_.push_back(of);
    bool any = false, all_of_weights = true;
    for (TensorId id : i.inputs) {
      if (id == no_tensor) continue;
      any = true;
      all_of_weights = all_of_weights && of_weights_[index(id)];
      touch(id, i, n, forward);
      if (forward) {
        if (use_of(id).kept.written < 0 && i.queue == Queue::compute()) set_written(id, n);
        continue;
      }
      use_of(id).is_read = use_of(id).is_read || i.op->touches_memory();
      if (made_[index(id)] == 1) keep(id);
    }
    for (TensorId id : i.outputs) {
      if (id == no_tensor) continue;
      of_weights_[index(id)] = of_weights_[index(id)] || (any && all_of_weights);
      made_[index(id)] = forward ? 1 : 0;
      touch(id, i, n, forward);
      Use& use = use_of(id);
      if (forward) {
        set_written(id, i.queue == Queue::compute() ? n : -1);
      } else if (use.kept.last_forward >= 0) {
        use.returns = use.returns || id == use.kept.storage;
        use.kept.later.push_back(id);
      }
    }
  }

  Use& use_of(TensorId id) { return by_storage_[index(step_[id].storage)]; }

  void set_written(TensorId id, InstructionId n) {
    Use& use = use_of(id);
    use.kept.written = n;
    use.run = runs_.size();
  }

  void touch(TensorId id, const Instruction& i, InstructionId n, bool forward) {
    Use& use = use_of(id);
    use.kept.storage = step_[id].storage;
    if (!can_move(id)) use.returns = true;
    if (forward) {
      use.returns = use.returns || use.crosses;
      use.kept.last_forward = n;
    } else if (use.kept.last_forward >= 0 && !use.crosses) {
      use.crosses = true;
      use.kept.first_use = n;
      use.kept.layer = i.tag.layer;
      use.kept.micro_batch = i.tag.micro_batch;
      for (std::size_t run = use.run; run < runs_.size() && !use.kept.waits; ++run)
        use.kept.waits = runs_[run] != std::pair(i.tag.micro_batch, i.tag.layer);
    }
  }

  void keep(TensorId id) {
    Use& use = use_of(id);
    if (of_weights_[index(id)]) use.returns = true;
    std::vector<TensorId>& values = use.kept.values;
    if (std::find(values.begin(), values.end(), id) != values.end()) return;
    values.push_back(id);
    use.kept.bytes += step_.bytes(id);
  }

  const Program& step_;
  std::vector<std::int8_t> made_;  // by tensor: 1 in forward, 0 later
  std::vector<bool> of_weights_;   // by tensor: follows from parameters and constants alone
  std::vector<Use> by_storage_;
  std::vector<std::pair<std::int16_t, std::int16_t>> runs_{{-1, -1}};  // micro-batches and layers, in the order of compute
};

}  // namespace

std::vector<Kept> kept_activations(const Program& step) {
  return Finder(step).find();
}

}  // namespace consist
