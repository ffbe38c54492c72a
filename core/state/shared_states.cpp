#include "core/state/shared_states.h"

#include <map>
#include <string_view>

#include "consist/analysis.h"
#include "consist/error.h"

namespace consist {
namespace {

/// States as they are before the program begins, by name.
std::map<std::string_view, const Tensor*> states_of(const Program& program) {
  const DefUse def_use(program);
  std::map<std::string_view, const Tensor*> states;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.state && !def_use.is_made(static_cast<TensorId>(t))) states.emplace(tensor.name, &tensor);
  }
  return states;
}

}  // namespace

void check_shared_states(const Program& first, const Program& other, const std::string& name) {
  const std::map<std::string_view, const Tensor*> kept = states_of(first);
  const auto text = [](const Tensor& t, const Mesh& mesh) {
    return std::string(name_of(t.dtype)) + t.shape.text() + t.placements.text(mesh) + " in the memory of the " +
           std::string(name_of(t.space));
  };
  for (const auto& [state, tensor] : states_of(other)) {
    const auto found = kept.find(state);
    if (found == kept.end()) continue;
    const Tensor& there = *found->second;
    const bool same = there.dtype == tensor->dtype && there.shape == tensor->shape && there.placements == tensor->placements &&
                      there.space == tensor->space;
    if (same) continue;
    throw ProgramError("the program '" + name + "' reads the state '" + std::string(state) + "' as " + text(*tensor, other.mesh) +
                       ", the step keeps it as " + text(there, first.mesh));
  }
}

}  // namespace consist
