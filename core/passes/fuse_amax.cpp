#include "core/passes/fuse_amax.h"

#include <map>
#include <vector>

#include "consist/op.h"

namespace consist {
namespace {

/// The output that makes a tensor.
struct Maker {
  std::size_t instruction = 0;
  std::size_t output = 0;
};

}  // namespace

void fuse_amax(Program& program) {
  std::map<TensorId, Maker> makers;                           // of tensors whose maker can state their amax
  std::map<std::size_t, std::map<std::size_t, TensorId>> of;  // by instruction and output: the amax that it is to state
  std::vector<bool> fused(program.instructions.size(), false);
  for (std::size_t index = 0; index < program.instructions.size(); ++index) {
    const Instruction& i = program.instructions[index];
    if (i.op->states_amax()) {
      const auto maker = makers.find(i.inputs[0]);
      if (maker == makers.end()) continue;
      fused[index] = of[maker->second.instruction].emplace(maker->second.output, i.outputs[0]).second;
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
  std::vector<Instruction> kept;
  kept.reserve(program.instructions.size());
  for (std::size_t index = 0; index < program.instructions.size(); ++index) {
    if (!fused[index]) kept.push_back(std::move(program.instructions[index]));
  }
  program.instructions = std::move(kept);
}

}  // namespace consist
