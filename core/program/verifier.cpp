#include "core/program/verifier.h"

#include <algorithm>
#include <map>
#include <vector>

#include "consist/analysis.h"
#include "consist/error.h"
#include "consist/op.h"
#include "consist/places.h"
#include "core/program/operands.h"
#include "core/program/printer.h"
#include "core/program/well_formed.h"

namespace consist {
namespace {

/// The newest value of each byte range of one storage. Most storages have one range, which is kept without a map.
class Storage {
 public:
  void write(std::int64_t begin, std::int64_t end, TensorId value) {
    if (ranges_.empty()) {
      if (only_.value == no_tensor || (begin <= begin_ && only_.end <= end)) {
        begin_ = begin;
        only_ = {end, value};
        return;
      }
      ranges_[begin_] = only_;
    }
    auto first = ranges_.lower_bound(begin);
    if (first != ranges_.begin() && std::prev(first)->second.end > begin) --first;
    while (first != ranges_.end() && first->first < end) first = ranges_.erase(first);
    ranges_[begin] = {end, value};
  }
  bool holds(std::int64_t begin, TensorId value) const {
    if (ranges_.empty()) return only_.value == value && begin_ == begin;
    auto range = ranges_.find(begin);
    return range != ranges_.end() && range->second.value == value;
  }

 private:
  struct Range {
    std::int64_t end = 0;
    TensorId value = no_tensor;
  };
  std::int64_t begin_ = 0;
  Range only_;                            // while `ranges_` is empty
  std::map<std::int64_t, Range> ranges_;  // by their begin; they do not overlap
};

class Verifier {
 public:
  Verifier(const Program& program, bool placed)
      : program_(program), placed_(placed), defined_(program.tensors.size(), false), storages_(placed ? program.tensors.size() : 0) {}

  void run() {
    check_ids(program_);
    const DefUse def_use(program_);
    check_tensors(def_use);
    check_names(program_, def_use);
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) check(static_cast<InstructionId>(i), def_use);
  }

 private:
  [[noreturn]] void fail(InstructionId i, const std::string& why) const {
    throw ProgramError("instruction " + to_text(program_, i) + ": " + why);
  }

  std::int64_t bytes(TensorId id) const { return bytes_[static_cast<std::size_t>(id)]; }
  Storage& storage_of(const Tensor& t) { return storages_[static_cast<std::size_t>(t.storage)]; }

  void define(TensorId id) {
    defined_[static_cast<std::size_t>(id)] = true;
    if (!placed_) return;
    const Tensor& t = program_[id];
    const std::int64_t begin = unstrided_begin(program_, id);
    storage_of(t).write(begin, begin + std::max<std::int64_t>(bytes(id), 1), id);
  }

  void check_tensors(const DefUse& def_use) {
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {  // all, before the bytes of any are computed
      const auto id = static_cast<TensorId>(t);
      if (!exists(program_, program_[id].storage)) throw ProgramError(who_is(program_, id) + "its storage does not exist");
      check_shape(program_, id);
    }
    if (placed_) {
      bytes_.reserve(program_.tensors.size());
      for (std::size_t t = 0; t < program_.tensors.size(); ++t) bytes_.push_back(program_.bytes(static_cast<TensorId>(t)));
    }
    for (std::size_t t = 0; placed_ && t < program_.tensors.size(); ++t) {
      const auto id = static_cast<TensorId>(t);
      const Tensor& tensor = program_[id];
      if (program_[tensor.storage].storage != tensor.storage) throw ProgramError(who_is(program_, id) + "its storage lies in another storage");
      if (tensor.offset < 0 || tensor.offset + bytes(id) > bytes(tensor.storage)) {
        throw ProgramError(who_is(program_, id) + "it does not lie inside its storage '" + program_[tensor.storage].name + "'");
      }
    }
    // Among values that are there from the start, those inside a storage are newer than the storage itself.
    for (const bool whole : {true, false}) {
      for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
        const Tensor& tensor = program_.tensors[t];
        const bool there = !def_use.is_made(static_cast<TensorId>(t)) && (tensor.state || tensor.role == Role::input);
        if (there && (tensor.storage == static_cast<TensorId>(t)) == whole) define(static_cast<TensorId>(t));
      }
    }
  }

  [[noreturn]] void fail_undefined(InstructionId index, TensorId id, const DefUse& def_use) const {
    fail(index, "'" + program_[id].name + "' is used before it is defined; " +
                    (def_use.is_made(id) ? "instruction " + std::to_string(def_use.producer(id)) + " makes it"
                                         : std::string("no instruction makes it")));
  }

  void check(InstructionId index, const DefUse& def_use) {
    const Instruction& i = program_.instructions[static_cast<std::size_t>(index)];
    Types inputs(i.inputs.size());
    for (std::size_t k = 0; k < i.inputs.size(); ++k) {
      const TensorId id = i.inputs[k];
      if (id == no_tensor) continue;
      const Tensor& t = program_[id];
      if (!defined_[static_cast<std::size_t>(id)]) fail_undefined(index, id, def_use);
      if (t.row_stride != 0 && i.op->touches_memory() && !i.op->takes_strided_view(static_cast<int>(k)))
        fail(index, "'" + t.name + "' is a strided view of a wider tensor, which the op does not take");
      if (placed_ && !storage_of(t).holds(unstrided_begin(program_, id), id))
        fail(index, "'" + t.name + "' is read after it was overwritten in place");
      inputs[k] = TensorType{t.dtype, t.shape};
    }
    if (placed_) check_types(index, i, inputs);
    for (TensorId id : i.outputs) {
      if (id == no_tensor) continue;
      if (defined_[static_cast<std::size_t>(id)]) fail(index, "'" + program_[id].name + "' is defined twice");
      define(id);
    }
    if (placed_) check_places(index, i);
    for (InstructionId wait : i.waits) {
      if (wait < 0 || wait >= index) fail(index, "it waits for instruction " + std::to_string(wait) + ", which is not before it");
    }
  }

  void check_places(InstructionId index, const Instruction& i) const {
    for (std::size_t k = 0; k < i.outputs.size(); ++k) {
      const bool strided = i.outputs[k] != no_tensor && program_[i.outputs[k]].row_stride != 0 && i.op->touches_memory();
      if (strided && !i.op->makes_strided_view(static_cast<int>(k)))
        fail(index, "'" + program_[i.outputs[k]].name + "' is a strided view of a wider tensor, which the op does not make");
      check_updated(index, i, static_cast<int>(k));
    }
    try {
      i.op->check_places(program_, i);
    } catch (const std::exception& error) {
      fail(index, error.what());
    }
  }

  void check_updated(InstructionId index, const Instruction& i, int output) const {
    const int slot = i.op->touches_memory() ? i.op->updates_in_place(output) : -1;
    if (slot < 0 || static_cast<std::size_t>(slot) >= i.inputs.size() || i.op->updates_apart(output)) return;
    const TensorId from = i.inputs[static_cast<std::size_t>(slot)], to = i.outputs[static_cast<std::size_t>(output)];
    if (from == no_tensor || to == no_tensor) return;
    if (program_[from].storage != program_[to].storage || program_[from].offset != program_[to].offset)
      fail(index, "'" + program_[to].name + "' does not lie in the place of '" + program_[from].name + "', which the op updates");
  }

  void check_types(InstructionId index, const Instruction& i, const Types& inputs) {
    Types expected;
    try {
      expected = i.op->infer(inputs, i.attributes);
    } catch (const std::exception& error) {
      fail(index, error.what());
    }
    if (expected.size() != i.outputs.size()) fail(index, "it has another number of outputs than its op makes");
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const TensorId id = i.outputs[k];
      if (id == no_tensor) continue;  // an output that nobody wants may be left out
      if (!expected[k]) fail(index, "output " + std::to_string(k) + " is not made by this instruction");
      if (program_[id].dtype != expected[k]->dtype || program_[id].shape != expected[k]->shape) {
        fail(index, "output '" + program_[id].name + "' must be " + std::string(name_of(expected[k]->dtype)) +
                        expected[k]->shape.text());
      }
    }
    if (!i.op->changes_placement()) check_placements(index, i, inputs);
  }

  void check_placements(InstructionId index, const Instruction& i, const Types& inputs) {
    for (int axis = 0; axis < program_.mesh.axes(); ++axis) {
      if (axis == program_.stage_axis) continue;
      AxisSharding rule{.axis = axis};
      for (TensorId id : i.inputs) rule.inputs.push_back(id == no_tensor ? Placement() : program_[id].placements[axis]);
      const std::vector<Placement> given = rule.inputs;
      i.op->shard(rule, inputs, i.attributes);
      if (rule.inputs.size() != given.size() || rule.outputs.size() < i.outputs.size())
        fail(index, "its op's placement rule has another number of inputs or outputs than the instruction");
      for (std::size_t k = 0; k < given.size(); ++k) {
        if (i.inputs[k] != no_tensor && given[k] != rule.inputs[k]) {
          fail(index, "input '" + program_[i.inputs[k]].name + "' does not lie on axis '" + program_.mesh.axis(axis).name +
                          "' as the op needs it");
        }
      }
      for (std::size_t k = 0; k < i.outputs.size(); ++k) {
        if (i.outputs[k] != no_tensor && program_[i.outputs[k]].placements[axis] != rule.outputs.at(k)) {
          fail(index, "output '" + program_[i.outputs[k]].name + "' does not lie on axis '" + program_.mesh.axis(axis).name +
                          "' as the op makes it");
        }
      }
    }
  }

  const Program& program_;
  bool placed_;  // whether types, placements and memory are as they will be
  std::vector<bool> defined_;
  std::vector<std::int64_t> bytes_;  // by tensor
  std::vector<Storage> storages_;    // by tensor
};

}  // namespace

void verify(const Program& program) {
  Verifier(program, true).run();
}

void verify_unplaced(const Program& program) {
  Verifier(program, false).run();
}

}  // namespace consist
