#include "plugins/strategies/cp/ring.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "consist/builder.h"
#include "consist/op.h"

namespace consist::context_parallel {
namespace {

/// Keys with values, or the gradients of both: they are sent as one message.
using Pair = std::array<TensorId, 2>;

class Ring {
 public:
  Ring(Program& program, int axis) : program_(program), builder_(program), axis_(axis), parts_(program.mesh.size_of(axis)) {}

  void run() {
    std::vector<Instruction> old = std::move(program_.instructions);
    program_.instructions.clear();
    for (Instruction& i : old) {
      if (!i.attributes.has("ring")) {
        program_.instructions.push_back(std::move(i));
      } else if (i.op->attends()) {
        forward(i);
      } else {
        backward(i);
      }
    }
  }

 private:
  std::string name_of(TensorId id) const { return program_[id].name; }

  Pair shift(const Pair& pair, const Tag& tag) {
    builder_.tag = tag;
    builder_.tag.inserted_by = "cp";
    const std::vector<TensorId> moved = builder_.emit("shift", {pair[0], pair[1]}, {{"axis", AxisSet(axis_)}, {"dim", std::int64_t{1}}},
                                                      {name_of(pair[0]), name_of(pair[1])});
    for (std::size_t k = 0; k < pair.size(); ++k) program_[moved[k]].placements = program_[pair[k]].placements;
    builder_.tag = tag;
    return {moved[0], moved[1]};
  }

  Attributes of_part(const Instruction& i, int part) const {
    Attributes attributes;
    for (const auto& [name, value] : i.attributes.all()) {
      if (name != "ring") attributes.set(name, value);
    }
    attributes.set("shift", std::int64_t{part});
    return attributes;
  }

  static TensorId input(const Instruction& i, std::size_t k) { return k < i.inputs.size() ? i.inputs[k] : no_tensor; }

  /// Writes the sum, which was made in f32, to `wanted`, which other instructions read: in its memory if it is f32 itself.
  void become(TensorId made, TensorId wanted) {
    if (wanted == no_tensor) return;
    if (program_[wanted].dtype != program_[made].dtype) {
      builder_.emit("cast", {made}, {{"dtype", std::string(consist::name_of(program_[wanted].dtype))}});
      program_.instructions.back().outputs[0] = wanted;
      return;
    }
    // Updates in place lie where the first value does; tensors in the memory of `wanted` are moved there, too.
    const TensorId storage = program_[made].storage;
    for (Tensor& tensor : program_.tensors) {
      if (storage != made && tensor.storage == wanted) tensor.storage = storage;
    }
    for (std::size_t n = program_.instructions.size(); n-- > begin_;) {
      for (std::vector<TensorId>* ids : {&program_.instructions[n].inputs, &program_.instructions[n].outputs})
        std::ranges::replace(*ids, made, wanted);
    }
  }

  /// Marks the outputs made since `begin_` as recomputed if `like`, the value that they are made for, is recomputed in backward.
  void mark(TensorId like) {
    if (like == no_tensor) return;
    for (std::size_t n = begin_; n < program_.instructions.size(); ++n) {
      for (const TensorId output : program_.instructions[n].outputs) program_[output].recomputed = program_[like].recomputed;
    }
  }

  void forward(const Instruction& i) {
    begin_ = program_.instructions.size();
    const Tag tag = builder_.tag = i.tag;
    Pair here{i.inputs[1], i.inputs[2]};
    TensorId o = no_tensor, lse = no_tensor;
    for (int part = 0; part < parts_; ++part) {
      const Pair next = part + 1 < parts_ ? shift(here, tag) : here;
      const std::vector<TensorId> made =
          builder_.emit("attention_part", {i.inputs[0], here[0], here[1], input(i, 3), o, lse}, of_part(i, part),
                        {name_of(i.outputs[0]), name_of(i.outputs[0]) + ".lse"});
      o = made[0];
      lse = made[1];
      here = next;
    }
    become(o, i.outputs[0]);
    become(lse, i.outputs[1]);
    mark(i.outputs[0]);
  }

  void backward(const Instruction& i) {
    begin_ = program_.instructions.size();
    const Tag tag = builder_.tag = i.tag;
    Pair here{i.inputs[2], i.inputs[3]}, sum{};
    const std::vector<std::string> names{name_of(i.inputs[1]) + ".grad", name_of(i.inputs[2]) + ".grad", name_of(i.inputs[3]) + ".grad"};
    TensorId dq = no_tensor;
    for (int part = 0; part < parts_; ++part) {
      const Pair next = part + 1 < parts_ ? shift(here, tag) : here;
      const std::vector<TensorId> made =
          builder_.emit("attention_part_grad", {i.inputs[0], i.inputs[1], here[0], here[1], i.inputs[4], i.inputs[5], input(i, 6), dq},
                        of_part(i, part), names);
      dq = made[0];
      Pair own{made[1], made[2]};
      if (part > 0) {
        const std::vector<TensorId> sums = builder_.emit("add", {own[0], sum[0], own[1], sum[1]}, {}, {names[1], names[2]});
        own = {sums[0], sums[1]};
      }
      sum = shift(own, tag);  // of the last part: home
      here = next;
    }
    become(dq, i.outputs[0]);
    become(sum[0], i.outputs[1]);
    become(sum[1], i.outputs[2]);
  }

  Program& program_;
  Builder builder_;
  int axis_, parts_;
  std::size_t begin_ = 0;  // of the instructions of the present one
};

}  // namespace

void attend_around_ring(Program& micro_batch, int axis) {
  Ring(micro_batch, axis).run();
}

}  // namespace consist::context_parallel
