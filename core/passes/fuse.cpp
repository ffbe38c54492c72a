#include "core/passes/fuse.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "consist/edit.h"
#include "consist/op.h"

namespace consist {
namespace {

/// The output that makes a tensor.
struct Maker {
  std::size_t instruction = 0;
  std::size_t output = 0;
};

/// Removes instructions whose op was taken away.
void remove_fused(Program& program) {
  std::erase_if(program.instructions, [](const Instruction& i) { return i.op == nullptr; });
}

/// Finds the products that only an addition reads.
class Products {
 public:
  explicit Products(const Program& program)
      : program_(program), readers_(program.tensors.size(), 0), members_(program.tensors.size(), 0) {
    for (const Tensor& tensor : program.tensors) ++members_[static_cast<std::size_t>(tensor.storage)];
    for (const Instruction& i : program.instructions) {
      for (const TensorId input : i.inputs) {
        if (input != no_tensor) ++readers_[static_cast<std::size_t>(input)];
      }
    }
  }

  /// `index`: of the instruction behind those that were noted before.
  void note(std::size_t index) {
    const Instruction& i = program_.instructions[index];
    for (const TensorId output : i.outputs) {
      if (output == no_tensor) continue;
      last_writes_[program_[output].storage] = index;
      if (is_product(i)) made_[output] = index;
    }
  }

  /// The instruction whose product is all that `i` adds; its own index where it adds none.
  std::size_t added_by(std::size_t index) const {
    const Instruction& i = program_.instructions[index];
    if (!i.op->adds_pairs() || i.inputs.size() != 2 || i.queue != Queue::compute() || !updates(i)) return index;
    const auto found = made_.find(i.inputs[1]);
    if (found == made_.end() || !is_alone(i.inputs[1]) || program_[i.inputs[1]].dtype != program_[i.outputs[0]].dtype)
      return index;
    const Instruction& product = program_.instructions[found->second];
    const bool waits = std::ranges::all_of(product.inputs, [&](TensorId input) {
      if (input == no_tensor) return true;
      const auto write = last_writes_.find(program_[input].storage);
      return write == last_writes_.end() || write->second < found->second;
    });
    return waits ? found->second : index;
  }

 private:
  static bool is_product(const Instruction& i) {
    if (i.op->linear_part() != LinearPart::product || i.queue != Queue::compute() || i.outputs.size() != 1) return false;
    const int slot = i.op->updates_in_place(0);
    return slot >= 0 && (std::cmp_greater_equal(slot, i.inputs.size()) || i.inputs[static_cast<std::size_t>(slot)] == no_tensor);
  }
  /// True if the output lies where the sum was.
  bool updates(const Instruction& i) const {
    const Tensor &from = program_[i.inputs[0]], &to = program_[i.outputs[0]];
    return from.storage == to.storage && from.offset == to.offset && from.dtype == to.dtype;
  }
  bool is_alone(TensorId tensor) const {
    const auto at = static_cast<std::size_t>(tensor);
    return readers_[at] == 1 && program_[tensor].storage == tensor && members_[at] == 1 &&
           program_[tensor].role == Role::activation;
  }

  const Program& program_;
  std::vector<int> readers_, members_;           // by tensor, by storage
  std::map<TensorId, std::size_t> made_;         // products
  std::map<TensorId, std::size_t> last_writes_;  // by storage
};

}  // namespace

void fuse_amax(Program& program) {
  std::map<TensorId, Maker> makers;                           // of tensors whose maker can state their amax
  std::map<std::size_t, std::map<std::size_t, TensorId>> of;  // by instruction and output: the amax that it is to state
  for (std::size_t index = 0; index < program.instructions.size(); ++index) {
    Instruction& i = program.instructions[index];
    if (i.op->states_amax()) {
      const auto maker = makers.find(i.inputs[0]);
      if (maker == makers.end()) continue;
      if (of[maker->second.instruction].emplace(maker->second.output, i.outputs[0]).second) i.op = nullptr;
    } else if (i.op->with_amax() != nullptr) {
      for (std::size_t k = 0; k < i.outputs.size(); ++k) {
        if (i.outputs[k] != no_tensor) makers[i.outputs[k]] = {index, k};
      }
    }
  }
  for (const auto& [index, outputs] : of) {
    Instruction& i = program.instructions[index];
    i.op = i.op->with_amax();
    std::int64_t mask = 0;
    for (const auto& [output, amax] : outputs) {
      mask |= std::int64_t{1} << output;
      i.outputs.push_back(amax);
    }
    i.attributes.set("amax_of", mask);
  }
  remove_fused(program);
}

void fuse_sums(Program& program) {
  Products products(program);
  std::vector<std::pair<std::size_t, std::size_t>> sums;  // the product, the addition that takes its place
  for (std::size_t index = 0; index < program.instructions.size(); ++index) {
    if (const std::size_t product = products.added_by(index); product != index) sums.emplace_back(product, index);
    products.note(index);
  }
  for (const auto& [product, addition] : sums) {
    Instruction& sum = program.instructions[addition];
    Instruction made = std::exchange(program.instructions[product], {});
    add_into(program, made, 0, sum.inputs[0]);
    made.outputs = sum.outputs;
    sum = std::move(made);
  }
  remove_fused(program);
}

}  // namespace consist
