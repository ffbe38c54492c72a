// packed_linear, packed_linear_input_grad, packed_linear_weight_grad: linears that read one x as a single product. Weights lie
// one behind the other in memory, and so do the results of a row: y = [y1 | … | yn], of which each yk is a strided view. Made by
// a pass (core/passes/pack_linears.h), never differentiated.
#include <array>

#include "consist/places.h"
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

/// Behind input 0, the inputs of the linears come in pairs.
std::size_t parts_of(std::size_t inputs) {
  return (inputs - 1) / 2;
}

/// n instructions of the packed op side by side: types, placements and costs are those of each.
class Packed : public NamedOp {
 public:
  /// `slots`: where the op's own inputs are: 0 the input that all share, 1 and 2 those of its pair.
  Packed(const std::string& op, std::array<std::size_t, 3> slots) : NamedOp("packed_" + op), op_(op), slots_(slots) {}

  Types infer(const Types& in, const Attributes& attributes) const override {
    require(in.size() >= 3 && in.size() % 2 == 1, "inputs must be one and then pairs");
    Types made;
    for (std::size_t k = 0; k < parts_of(in.size()); ++k) {
      const Types of_part = op().infer(part(in, k), attributes);
      if (!shares_output())
        made.push_back(of_part[0]);
      else if (k == 0)
        made = of_part;
      else
        require(made == of_part, "the products have different shapes");
    }
    return made;
  }

  void shard(AxisSharding& axis, const Types& in, const Attributes& attributes) const override {
    for (std::size_t k = 0; k < parts_of(in.size()); ++k) {
      AxisSharding of_part{part(axis.inputs, k), {}, axis.axis};
      op().shard(of_part, part(in, k), attributes);
      for (std::size_t i = 0; i < slots_.size(); ++i) axis.inputs[slot(i, k)] = of_part.inputs[i];
      if (k == 0 || !shares_output()) axis.outputs.push_back(of_part.outputs[0]);
    }
  }

  Cost cost(const Program& program, const Instruction& i) const override {
    Cost cost = Op::cost(program, i);
    for (std::size_t k = 0; k < parts_of(i.inputs.size()); ++k) {
      Instruction of_part{.op = &op(), .inputs = part(i.inputs, k), .outputs = {i.outputs[shares_output() ? 0 : k]}};
      cost.flops += op().cost(program, of_part).flops;
    }
    return cost;
  }

 protected:
  const Op& op() const { return registry().get(op_); }
  bool shares_output() const { return slots_[2] == 0; }

  /// Every second of `tensors`, from `first` on.
  static std::vector<TensorId> every_second(const std::vector<TensorId>& tensors, std::size_t first) {
    std::vector<TensorId> chosen;
    for (std::size_t i = first; i < tensors.size(); i += 2) chosen.push_back(tensors[i]);
    return chosen;
  }
  /// Throws unless the tensors are all absent, or dense and lie one behind the other.
  void check_behind_each_other(const Program& program, const std::vector<TensorId>& tensors) const {
    for (std::size_t k = 1; k < tensors.size(); ++k) {
      require((tensors[k] == no_tensor) == (tensors[0] == no_tensor), "some are given and others not");
      if (tensors[k] != no_tensor && !lie_behind_each_other(program, tensors[k - 1], tensors[k]))
        fail("'" + program[tensors[k]].name + "' must lie right behind '" + program[tensors[k - 1]].name + "'");
    }
  }
  void check_side_by_side(const Program& program, const std::vector<TensorId>& tensors) const {
    for (std::size_t k = 1; k < tensors.size(); ++k) {
      if (!lie_side_by_side(program, tensors[k - 1], tensors[k]))
        fail("'" + program[tensors[k]].name + "' must be the strided view beside '" + program[tensors[k - 1]].name + "'");
    }
  }

 private:
  std::size_t slot(std::size_t input, std::size_t k) const { return slots_[input] == 0 ? 0 : slots_[input] + 2 * k; }

  template <typename T>
  std::vector<T> part(const std::vector<T>& inputs, std::size_t k) const {
    return {inputs.at(slot(0, k)), inputs.at(slot(1, k)), inputs.at(slot(2, k))};
  }

  std::string op_;
  std::array<std::size_t, 3> slots_;
};

/// x, pairs of w and bias? -> yk
class PackedLinear final : public Packed {
 public:
  PackedLinear() : Packed("linear", {0, 1, 2}) {}
  bool makes_strided_view(int /*output*/) const noexcept override { return true; }
  void check_places(const Program& program, const Instruction& i) const override {
    check_behind_each_other(program, every_second(i.inputs, 1));
    check_behind_each_other(program, every_second(i.inputs, 2));
    check_side_by_side(program, i.outputs);
  }
};

/// acc?, pairs of dyk and wk -> dx
class PackedLinearInputGrad final : public Packed {
 public:
  PackedLinearInputGrad() : Packed("linear_input_grad", {1, 2, 0}) {}
  int updates_in_place(int /*output*/) const noexcept override { return 0; }
  bool takes_strided_view(int input) const noexcept override { return input % 2 == 1; }
  void check_places(const Program& program, const Instruction& i) const override {
    check_side_by_side(program, every_second(i.inputs, 1));
    check_behind_each_other(program, every_second(i.inputs, 2));
  }
};

/// x, pairs of dyk and acc? -> dwk
class PackedLinearWeightGrad final : public Packed {
 public:
  PackedLinearWeightGrad() : Packed("linear_weight_grad", {0, 1, 2}) {}
  int updates_in_place(int output) const noexcept override { return 2 + 2 * output; }
  bool makes_weight_gradients() const noexcept override { return true; }
  bool takes_strided_view(int input) const noexcept override { return input % 2 == 1; }
  void check_places(const Program& program, const Instruction& i) const override {
    check_side_by_side(program, every_second(i.inputs, 1));
    check_behind_each_other(program, every_second(i.inputs, 2));
    check_behind_each_other(program, i.outputs);
  }
};

}  // namespace

void register_packed_linear(OpRegistry& registry) {
  registry.add(std::make_unique<PackedLinear>());
  registry.add(std::make_unique<PackedLinearInputGrad>());
  registry.add(std::make_unique<PackedLinearWeightGrad>());
}

}  // namespace consist::ops
