#include "core/interpreter/gradients.h"

#include <algorithm>

#include "consist/error.h"
#include "consist/op.h"

namespace consist::interpreter {
namespace {

/// The factor that the optimizer gets beside the gradients, and its maker: made from their norm, then divided by the number of
/// targets that count, and held where rows had no room.
std::pair<InstructionId, TensorId> clip_of(const Program& program) {
  std::pair<InstructionId, TensorId> clip{-1, no_tensor};
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    const auto made = [&](TensorId output) { clip = {static_cast<InstructionId>(n), output}; };
    if (i.op->name() == "clip_coefficient") made(i.outputs[1]);
    if (clip.second == no_tensor) continue;
    if (i.op->name() == "per_target" && i.inputs[0] == clip.second) made(i.outputs[0]);
    if (i.op->name() == "hold_update" && i.inputs[1] == clip.second) return clip;
  }
  if (clip.second == no_tensor) throw ProgramError("the step has no instruction clip_coefficient");
  return clip;
}

/// By number: the first instruction that reads the tensor, or a view of it, for something else than the norm; -1: none.
std::vector<InstructionId> first_readers(const Program& program) {
  std::vector<InstructionId> readers(program.tensors.size(), -1);
  std::vector<TensorId> views_of(program.tensors.size(), no_tensor);
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    if (i.op->name() == "sum_of_squares") continue;
    for (const TensorId input : i.inputs) {
      if (!i.op->touches_memory()) {
        for (const TensorId output : i.outputs) {
          if (output != no_tensor && input != no_tensor) views_of[static_cast<std::size_t>(output)] = input;
        }
        continue;
      }
      for (TensorId of = input; of != no_tensor; of = views_of[static_cast<std::size_t>(of)]) {
        InstructionId& reader = readers[static_cast<std::size_t>(of)];
        if (reader < 0) reader = static_cast<InstructionId>(n);
      }
    }
  }
  return readers;
}

}  // namespace

Gradients::Gradients(std::span<const Arena> ranks) {
  for (const Arena& arena : ranks) {
    const Program& program = arena.planned().program;
    OfRank of{.arena = &arena, .taken = {}, .clip = clip_of(program), .values = {}};
    const std::vector<InstructionId> readers = first_readers(program);
    for (const Parameter& p : program.parameters) {
      if (p.gradient == no_tensor) continue;
      const InstructionId reader = readers[static_cast<std::size_t>(p.gradient)];
      if (reader < 0)
        throw ProgramError("rank " + std::to_string(program.rank) + ": no instruction of the optimizer reads the gradient of '" +
                           p.name + "'");
      of.taken[reader].push_back(&p);
    }
    ranks_.push_back(std::move(of));
  }
}

Gradients::OfRank& Gradients::of(const Arena& rank) {
  return *std::ranges::find(ranks_, &rank, &OfRank::arena);
}

void Gradients::see_before(const Arena& rank, InstructionId instruction) {
  OfRank& here = of(rank);
  const auto taken = here.taken.find(instruction);
  if (taken == here.taken.end()) return;
  for (const Parameter* p : taken->second) here.values[p] = rank.read(p->gradient).data;
}

void Gradients::see_after(const Arena& rank, InstructionId instruction) {
  OfRank& here = of(rank);
  if (instruction == here.clip.first) here.factor = rank.read(here.clip.second).at(0);
}

LogicalValues Gradients::finish() const {
  Assembly assembly;
  for (const OfRank& of : ranks_) {
    for (const Parameter& p : of.arena->planned().program.parameters) {
      if (p.gradient == no_tensor) continue;
      std::vector<double> clipped = of.values.at(&p);
      for (double& value : clipped) value *= of.factor;
      assembly.add(of.arena->planned().program, p.name + ".gradient", p.gradient, clipped);
    }
  }
  return assembly.finish();
}

}  // namespace consist::interpreter
