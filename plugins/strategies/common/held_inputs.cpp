#include "plugins/strategies/common/held_inputs.h"

#include <map>
#include <utility>
#include <vector>

#include "consist/edit.h"
#include "consist/op.h"
#include "consist/places.h"

namespace consist::strategies {
namespace {

class Hold {
 public:
  Hold(Program& step, int axis, Held held) : step_(step), axis_(axis), held_(held), last_(last_uses(step)) {}

  void run() {
    for (std::size_t i = 0; i < step_.instructions.size(); ++i) {
      const Instruction& instruction = step_.instructions[i];
      if (!instruction.op->touches_memory()) continue;  // a view is no reader
      for (TensorId id : instruction.inputs) {
        if (id != no_tensor) arrives(id, i);
      }
      if (instruction.op->is_collective() && instruction.queue.axes() == axis_) departs(instruction, i);
      before_ = i;
    }
    Inserter inserter(step_);
    for (const Release& release : releases_) {
      inserter.after(static_cast<InstructionId>(release.reader) - 1, [&](Builder& builder) {
        builder.tag = step_.instructions[release.reader].tag;
        builder.emit("release", release.inputs);
      });
    }
    inserter.apply();
  }

 private:
  struct Travelling {
    std::size_t collective;
    std::vector<TensorId> outputs, inputs;
  };
  struct Release {
    std::size_t reader;
    std::vector<TensorId> inputs;
  };

  TensorId storage_of(TensorId id) const { return step_[id].storage; }

  void departs(const Instruction& collective, std::size_t at) {
    Travelling made{at, collective.outputs, {}};
    for (TensorId id : collective.inputs) {
      const InstructionId last = last_[static_cast<std::size_t>(storage_of(id))];
      if (last == static_cast<InstructionId>(at) || (held_ == Held::read_beside && !step_[id].state)) made.inputs.push_back(id);
    }
    if (!made.inputs.empty()) travelling_[storage_of(made.outputs[0])].push_back(std::move(made));
  }

  void arrives(TensorId read, std::size_t reader) {
    const auto found = travelling_.find(storage_of(read));
    if (found == travelling_.end()) return;
    std::erase_if(found->second, [&](Travelling& collective) {
      if (!extents_overlap(step_, read, collective.outputs[0])) return false;  // another slice of the same tensor
      // A tensor that is read again, here or later, keeps its memory anyway.
      std::erase_if(collective.inputs, [&](TensorId id) {
        return last_[static_cast<std::size_t>(storage_of(id))] >= static_cast<InstructionId>(reader);
      });
      if (collective.inputs.empty()) return true;
      if (before_ > collective.collective) releases_.push_back({reader, std::move(collective.inputs)});
      return true;
    });
  }

  Program& step_;
  int axis_;
  Held held_;
  std::size_t before_ = 0;                                  // the instruction before, views left out
  std::vector<InstructionId> last_;                         // by storage: the last instruction that touches it
  std::map<TensorId, std::vector<Travelling>> travelling_;  // by the storage of the collective's first output
  std::vector<Release> releases_;
};

}  // namespace

void hold_inputs(Program& step, int axis, Held held) {
  Hold(step, axis, held).run();
}

}  // namespace consist::strategies
