#include "consist/edit.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "consist/error.h"

namespace consist {

Inserter::Inserter(Program& program) : program_(program), original_(program.instructions.size()) {}

void Inserter::after(InstructionId position, const std::function<void(Builder&)>& emit) {
  if (position < -1 || position >= static_cast<InstructionId>(original_))
    throw ProgramError("insertion behind instruction " + std::to_string(position) + ", but the program had " +
                       std::to_string(original_) + " instructions when the Inserter was made");
  const std::size_t first = program_.instructions.size();
  Builder builder(program_);
  if (position >= 0) builder.tag = program_.instructions[static_cast<std::size_t>(position)].tag;
  emit(builder);
  groups_.push_back({position, first, program_.instructions.size()});
}

void Inserter::apply() {
  std::stable_sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) { return a.position < b.position; });
  std::vector<Instruction> merged;
  merged.reserve(program_.instructions.size());
  auto group = groups_.begin();
  for (InstructionId position = -1; position < static_cast<InstructionId>(original_); ++position) {
    if (position >= 0) merged.push_back(std::move(program_.instructions[static_cast<std::size_t>(position)]));
    for (; group != groups_.end() && group->position == position; ++group) {
      for (std::size_t i = group->first; i < group->last; ++i) merged.push_back(std::move(program_.instructions[i]));
    }
  }
  program_.instructions = std::move(merged);
  groups_.clear();
  original_ = program_.instructions.size();
}

TensorId pack(Program& program, std::span<const TensorId> tensors, std::string name) {
  const Pack one{{tensors.begin(), tensors.end()}, std::move(name)};
  return pack(program, std::span(&one, 1)).front();
}

std::vector<TensorId> pack(Program& program, std::span<const Pack> packs) {
  struct Place {
    TensorId storage;
    std::int64_t offset;
  };
  std::unordered_map<TensorId, Place> places;  // by old storage
  std::vector<TensorId> storages;
  const std::int64_t padding = program.padding();
  for (const Pack& wanted : packs) {
    const auto storage = static_cast<TensorId>(program.tensors.size());
    std::int64_t bytes = 0;
    Role role = Role::workspace;
    for (TensorId tensor : wanted.tensors) {
      const Tensor& t = program[tensor];
      const Tensor& old = program[t.storage];
      if (t.offset != 0 || old.state || program.bytes(t.storage) != program.bytes(tensor)) {
        throw ProgramError("'" + t.name + "' cannot be packed: it is a view or a state");
      }
      if (!places.emplace(t.storage, Place{storage, bytes}).second) throw ProgramError("'" + t.name + "' is packed twice");
      bytes += aligned(program.bytes(tensor) + padding);
      role = t.role;
    }
    storages.push_back(Builder(program).storage(wanted.name, bytes, role));
  }
  for (Tensor& tensor : program.tensors) {
    const auto moved = places.find(tensor.storage);
    if (moved == places.end()) continue;
    tensor.storage = moved->second.storage;
    tensor.offset += moved->second.offset;
  }
  return storages;
}

void add_into(const Program& program, Instruction& instruction, std::size_t output, TensorId sum) {
  const int slot = instruction.op->updates_in_place(static_cast<int>(output));
  if (slot < 0) {
    throw ProgramError("op '" + std::string(instruction.op->name()) + "' makes the gradient '" + program[sum].name +
                       "' but cannot add to it; it needs an accumulator input (Op::updates_in_place)");
  }
  const auto at = static_cast<std::size_t>(slot);
  if (instruction.inputs.size() <= at) instruction.inputs.resize(at + 1, no_tensor);
  instruction.inputs[at] = sum;
}

std::vector<InstructionId> last_writers(const Program& program) {
  std::vector<InstructionId> by_tensor(program.tensors.size(), -1);
  // A pack has many writers; what counts for a tensor is who wrote it or a later value in its place.
  std::unordered_map<std::int64_t, InstructionId> by_place;
  auto place = [](const Tensor& t) { return (static_cast<std::int64_t>(t.storage) << 40) + t.offset / tensor_alignment; };
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (TensorId output : program.instructions[i].outputs) {
      if (output != no_tensor) by_place[place(program[output])] = static_cast<InstructionId>(i);
    }
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    auto found = by_place.find(place(program.tensors[t]));
    if (found != by_place.end()) by_tensor[t] = found->second;
  }
  return by_tensor;
}

}  // namespace consist
