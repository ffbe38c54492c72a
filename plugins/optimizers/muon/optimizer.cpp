// Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon): the momentum of a layer's matrix, made orthogonal by
// Newton-Schulz iterations, is its update. Embedding, head, norms and biases are updated by AdamW, as its author does.
//     m = lerp(m, g, 1 - momentum);  u = lerp(g, m, momentum) (Nesterov) or m;  o = orthogonal(u)
//     p = p (1 - rate decay) - rate scale o                                                     (the form of torch.optim.Muon)
// scale: max(1, rows/columns)^0.5 (original), or 0.2 max(rows, columns)^0.5, with which AdamW's rates and decays fit (Liu et al.,
// "Muon is Scalable for LLM Training", 2025). The momentum lies as the gradient does; what is made orthogonal must be whole, so
// ranks that have parts of a matrix gather it, each makes all of it orthogonal, and keeps its part.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "consist/error.h"
#include "consist/optimizer.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

class Muon final : public Optimizer {
 public:
  explicit Muon(const Options& options)
      : momentum_(options.real("momentum")),
        nesterov_(options.flag("nesterov")),
        iterations_(options.integer("iterations")),
        matches_adamw_(options.text("scale") == "adamw"),
        adamw_({.beta1 = options.real("beta1"), .beta2 = options.real("beta2"), .epsilon = options.real("epsilon")}) {
    if (momentum_ < 0 || momentum_ >= 1)
      throw UsageError("--muon.momentum is " + std::to_string(momentum_) + "; it must be at least 0 and below 1");
    if (iterations_ < 1 || iterations_ > 100)
      throw UsageError("--muon.iterations is " + std::to_string(iterations_) + "; it must be from 1 to 100");
  }

  std::vector<OptimizerState> states(const Parameter& parameter, const Shape& shape) const override {
    return is_of_a_layer(parameter, shape) ? std::vector<OptimizerState>{"momentum"} : adamw_.states(parameter, shape);
  }
  std::size_t scalar_count() const override { return adamw_.scalar_count(); }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    adamw_.write_scalars(step, learning_rate, out);
  }

  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    UpdateGroup others = group;
    others.parameters.clear();
    for (const UpdatedParameter& p : group.parameters) {
      if (is_of_a_layer(*p.parameter, builder[p.value].shape))
        update_matrix(builder, scalars, clip, group, p);
      else
        others.parameters.push_back(p);
    }
    if (!others.parameters.empty()) adamw_.update(builder, scalars, clip, others);
  }

  std::string describe() const override {
    char text[120];
    std::snprintf(text, sizeof text, "Muon, momentum %g, on the matrices of layers; %s on the rest", momentum_,
                  adamw_.describe().c_str());
    return text;
  }

 private:
  /// A linear's weight within a layer; neither embedding nor head.
  static bool is_of_a_layer(const Parameter& parameter, const Shape& shape) {
    return shape.rank() == 2 && parameter.name.find(".layers.") != std::string::npos;
  }

  void update_matrix(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group, const UpdatedParameter& p) const {
    const std::string& name = p.parameter->name;
    const std::vector<TensorId> moved =
        builder.emit("muon_momentum", {clip, p.gradient, p.states[0]},
                     {{"momentum", momentum_}, {"nesterov", std::int64_t{nesterov_ ? 1 : 0}}}, {name + ".momentum", name + ".direction"});
    TensorId direction = moved[1];
    const Program& program = builder.program();
    Placements whole;
    if (program.stage_axis >= 0) whole[program.stage_axis] = program[direction].placements[program.stage_axis];
    direction = builder.reshard(direction, whole);
    const TensorId orthogonal = builder.emit_one("orthogonalize", {direction}, {{"iterations", iterations_}, {"products", std::string(name_of(builder[p.value].dtype))}}, name + ".orthogonal");
    const Shape shape = builder[p.value].shape;
    const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
    const double scale = matches_adamw_ ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
    builder.emit("muon", {scalars, p.value, orthogonal, p.master},
                 {{"scale", scale},
                  {"weight_decay", group.weight_decay},
                  {"stochastic_rounding", std::int64_t{group.stochastic_rounding ? 1 : 0}},
                  {"seed", group.seed}},
                 {name, name + ".master"});
  }

  double momentum_;
  bool nesterov_;
  std::int64_t iterations_;
  bool matches_adamw_;
  AdamW adamw_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Muon, "muon", "1.0.0",
               "Muon: orthogonal updates of the matrices of layers, AdamW for the rest");
CONSIST_PLUGIN_OPTIONS({"momentum", consist::OptionKind::real, "0.95", "of matrices"},
                       {"nesterov", consist::OptionKind::flag, "true", "Nesterov's momentum"},
                       {"iterations", consist::OptionKind::integer, "5", "of Newton-Schulz"},
                       {"scale", consist::OptionKind::choice, "adamw", "of updates: of AdamW's size, or the original's",
                        "adamw|original"},
                       {"beta1", consist::OptionKind::real, "0.9", "of AdamW on the rest"},
                       {"beta2", consist::OptionKind::real, "0.95", "of AdamW on the rest"},
                       {"epsilon", consist::OptionKind::real, "1e-8", "of AdamW on the rest"});
