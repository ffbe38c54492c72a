#include "core/passes/hoist_step_invariants.h"

#include <map>
#include <string>

#include "consist/op.h"

namespace consist {
namespace {

std::string key_of(const Instruction& i) {
  std::string key(i.op->name());
  for (TensorId input : i.inputs) key += " " + std::to_string(input);
  return key + ";" + i.attributes.key();
}

}  // namespace

void hoist_step_invariants(Program& program) {
  std::map<TensorId, TensorId> replaced;
  std::map<std::string, std::vector<TensorId>> known;
  std::vector<Instruction> kept;
  kept.reserve(program.instructions.size());
  for (Instruction& i : program.instructions) {
    for (TensorId& input : i.inputs) {
      if (auto by = replaced.find(input); by != replaced.end()) input = by->second;
    }
    if (i.attributes.integer_or("once_per_step", 0) != 0) {
      const auto [first, added] = known.try_emplace(key_of(i), i.outputs);
      if (!added) {
        for (std::size_t k = 0; k < i.outputs.size(); ++k) replaced[i.outputs[k]] = first->second[k];
        continue;
      }
    }
    kept.push_back(std::move(i));
  }
  program.instructions = std::move(kept);
}

}  // namespace consist
