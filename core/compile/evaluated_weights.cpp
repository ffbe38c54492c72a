#include "core/compile/evaluated_weights.h"

#include <algorithm>
#include <map>
#include <utility>

#include "consist/builder.h"
#include "core/passes/optimizer_states.h"

namespace consist {
namespace {

constexpr const char* evaluated_pass = "evaluated_weights";

/// The master, if there is one, and the states with their factors.
struct EvaluatedWeight {
  TensorId weight = no_tensor;
  std::vector<std::pair<TensorId, double>> added;
};

EvaluatedWeight make_states_of(Builder& builder, Parameter& parameter, const DTypes& dtypes, const OptimizerUses& optimizers) {
  const Optimizer& optimizer = *optimizers.of(parameter.name).optimizer;
  const Tensor weight = builder[parameter.tensor];
  const std::vector<OptimizerState> states = optimizer.states(parameter, weight.shape);
  const std::vector<double> factors = optimizer.evaluated(parameter, weight.shape);
  check_states(states, factors, parameter.name);
  EvaluatedWeight evaluated{parameter.tensor, {}};
  if (!reads_others(factors)) return evaluated;
  if (dtypes.master)
    evaluated.weight = parameter.master =
        builder.state(parameter.name + ".master", *dtypes.master, weight.shape, weight.placements);
  for (std::size_t k = 0; k < states.size(); ++k) {
    if (factors[k] == 0) continue;
    const TensorId state = builder.state(parameter.name + "." + states[k].name, states[k].dtype.value_or(dtypes.moment),
                                         weight.shape, weight.placements);
    parameter.states.push_back({states[k].name, state});
    evaluated.added.emplace_back(state, factors[k]);
  }
  return evaluated;
}

TensorId in_f32(Builder& builder, TensorId tensor) {
  return builder.emit_one("cast", {tensor}, {{"dtype", std::string(name_of(DType::f32))}}, builder[tensor].name);
}

TensorId sum_of(Builder& builder, const EvaluatedWeight& evaluated, TensorId parameter) {
  const std::string name = builder[parameter].name + ".evaluated";
  const DType dtype = builder[parameter].dtype;
  TensorId sum = in_f32(builder, evaluated.weight);
  for (const auto& [state, factor] : evaluated.added) {
    const TensorId term = builder.emit_one("scale", {in_f32(builder, state)}, {{"factor", factor}}, name);
    sum = builder.emit_one("add", {sum, term}, {}, name);
  }
  return dtype == DType::f32 ? sum : builder.emit_one("cast", {sum}, {{"dtype", std::string(name_of(dtype))}}, name);
}

}  // namespace

bool reads_others(const std::vector<double>& evaluated) {
  return std::any_of(evaluated.begin(), evaluated.end(), [](double factor) { return factor != 0; });
}

void read_evaluated_weights(Program& forward, const DTypes& dtypes, const OptimizerUses& optimizers) {
  Builder builder(forward);
  std::map<TensorId, EvaluatedWeight> others;  // by the parameter that forward would read
  for (Parameter& parameter : forward.parameters) {
    if (!parameter.trainable) continue;
    EvaluatedWeight evaluated = make_states_of(builder, parameter, dtypes, optimizers);
    if (!evaluated.added.empty()) others.emplace(parameter.tensor, std::move(evaluated));
  }
  if (others.empty()) return;
  for (Instruction i : std::exchange(forward.instructions, {})) {
    // Right before each use, so that no other sum takes memory by then; the uses of a tied weight may be on two ranks.
    for (TensorId& input : i.inputs) {
      const auto other = others.find(input);
      if (other == others.end()) continue;
      builder.tag = i.tag;
      builder.tag.inserted_by = evaluated_pass;
      input = sum_of(builder, other->second, input);
    }
    forward.instructions.push_back(std::move(i));
  }
}

}  // namespace consist
