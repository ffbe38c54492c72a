#include "core/passes/record_amaxes.h"

#include <map>
#include <vector>

#include "consist/builder.h"
#include "consist/float8_scaling.h"
#include "consist/op.h"

namespace consist {

void record_amaxes(Program& program) {
  std::map<TensorId, std::vector<TensorId>> found;  // by history: the amaxes of this step's instructions
  for (const Instruction& i : program.instructions) {
    if (i.op->quantizes() && scaling_of(i.attributes) == Scaling::delayed) found[i.inputs[1]].push_back(i.outputs[3]);
  }
  if (found.empty()) return;
  std::map<std::size_t, std::vector<TensorId>> by_count;  // weights have one, activations one for each micro-batch
  for (const auto& [history, amaxes] : found) by_count[amaxes.size()].push_back(history);
  std::vector<TensorId> all;
  for (const auto& [count, histories] : by_count) {
    for (TensorId history : histories) all.insert(all.end(), found[history].begin(), found[history].end());
  }

  Builder builder(program);
  builder.tag = {Phase::optimizer, -1, -1, "record_amaxes"};
  const AxisSet axes = program.mesh.all_axes().without(program.stage_axis);  // ranks of other stages have other tensors
  TensorId amaxes =
      builder.emit_one("rank_values", all, {{"axis", axes}, {"ranks", std::int64_t{program.mesh.size_of(axes)}}}, "amaxes");
  for (int axis = program.mesh.axes() - 1; axis >= 0; --axis) amaxes = builder.reshard(amaxes, axis, Placement::replicate());
  std::int64_t first = 0;
  for (const auto& [count, histories] : by_count) {
    std::vector<TensorId> inputs{amaxes};
    std::vector<std::string> names;
    for (TensorId history : histories) {
      inputs.push_back(history);
      names.push_back(program[history].name);
    }
    const auto columns = static_cast<std::int64_t>(count);
    builder.emit("record_amaxes", std::move(inputs), {{"first", first}, {"columns", columns}}, std::move(names));
    first += columns * static_cast<std::int64_t>(histories.size());
  }
}

}  // namespace consist
