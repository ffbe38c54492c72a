// AdamW, and code that updates of single elements share.
#include <cmath>
#include <cstdio>

#include "consist/error.h"
#include "consist/optimizer.h"

namespace consist {

Optimizer::~Optimizer() = default;
void Optimizer::add_passes(PassList& /*passes*/) const {}
std::vector<double> Optimizer::evaluated(const Parameter& /*parameter*/, const Shape& /*shape*/) const {
  return {};
}

void emit_update(Builder& builder, std::string_view op, TensorId scalars, TensorId clip, const UpdateGroup& group,
                 Attributes attributes) {
  const int states = registry().get(op).states_per_update();
  if (states < 0) throw ProgramError("op '" + std::string(op) + "' is none that updates parameters side by side");
  std::vector<TensorId> inputs{scalars, clip};
  std::vector<std::string> names;
  for (const UpdatedParameter& p : group.parameters) {
    std::vector<TensorId> kept = p.states;
    kept.resize(static_cast<std::size_t>(states), no_tensor);
    inputs.insert(inputs.end(), {p.value, p.gradient, p.master});
    inputs.insert(inputs.end(), kept.begin(), kept.end());
    names.insert(names.end(), {p.parameter->name, p.parameter->name + ".master"});
    for (TensorId state : kept) names.push_back(state == no_tensor ? "" : builder[state].name);
  }
  attributes.set("weight_decay", group.weight_decay);
  attributes.set("stochastic_rounding", std::int64_t{group.stochastic_rounding ? 1 : 0});
  attributes.set("seed", group.seed);
  builder.emit(op, std::move(inputs), std::move(attributes), std::move(names));
}

std::vector<OptimizerState> AdamW::states(const Parameter& /*parameter*/, const Shape& /*shape*/) const {
  return {"moment1", "moment2"};
}

void AdamW::write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const {
  const auto t = static_cast<double>(step);
  const auto correction = [&](double beta) {
    return settings_.bias_correction ? static_cast<float>(1.0 - std::pow(beta, t)) : 1.0F;
  };
  out[0] = static_cast<float>(learning_rate);
  out[1] = correction(settings_.beta1);
  out[2] = correction(settings_.beta2);
  out[3] = static_cast<float>(t);
}

void AdamW::update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const {
  emit_update(builder, "adamw", scalars, clip, group,
              {{"beta1", settings_.beta1}, {"beta2", settings_.beta2}, {"epsilon", settings_.epsilon}});
}

std::string AdamW::describe() const {
  char text[96];
  std::snprintf(text, sizeof text, "AdamW, betas %g and %g, epsilon %g%s", settings_.beta1, settings_.beta2, settings_.epsilon,
                settings_.bias_correction ? "" : ", no bias correction");
  return text;
}

}  // namespace consist
