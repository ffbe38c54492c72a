// Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon), scaled for AdamW's rates (Liu et al., 2025, arXiv
// 2502.16982): ops of Consist (docs/ops.md) around one of its own, which lies in the plugin "lion-and-muon" of kind kernels.
#include <consist/optimizer.h>
#include <consist/plugin.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace {

using namespace consist;

class MyMuon final : public Optimizer {
 public:
  explicit MyMuon(const Options& options) : momentum_(options.real("momentum")), iterations_(options.integer("iterations")) {}

  std::vector<OptimizerState> states(const Parameter& parameter, const Shape& shape) const override {
    return is_hidden(parameter, shape) ? std::vector<OptimizerState>{"momentum"} : adamw_.states(parameter, shape);
  }
  std::size_t scalar_count() const override { return adamw_.scalar_count(); }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    adamw_.write_scalars(step, learning_rate, out);  // the rate first, which is all that muon reads
  }

  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    UpdateGroup rest = group;
    std::erase_if(rest.parameters, [&](const UpdatedParameter& p) { return is_hidden(*p.parameter, builder[p.value].shape); });
    if (!rest.parameters.empty()) adamw_.update(builder, scalars, clip, rest);
    for (const UpdatedParameter& p : group.parameters) {
      const Shape shape = builder[p.value].shape;
      if (!is_hidden(*p.parameter, shape)) continue;
      const TensorId direction = builder.emit("muon_momentum", {clip, p.gradient, p.states[0]},
                                              {{"momentum", momentum_}, {"nesterov", std::int64_t{1}}})[1];
      // The op asks for the whole matrix by its placement rule, and "muon" for its part of what comes out: the builder gathers
      // and slices.
      const TensorId orthogonal = builder.emit_one("my_orthogonal", {direction}, {{"iterations", iterations_}});
      const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(shape[0], shape[1])));
      builder.emit("muon", {scalars, p.value, orthogonal, p.master},
                   {{"scale", scale},
                    {"weight_decay", group.weight_decay},
                    {"stochastic_rounding", std::int64_t{group.stochastic_rounding ? 1 : 0}},
                    {"seed", group.seed}});
    }
  }
  std::string describe() const override { return "my Muon on the matrices of layers; " + adamw_.describe() + " on the rest"; }

 private:
  static bool is_hidden(const Parameter& parameter, const Shape& shape) {
    return shape.rank() == 2 && parameter.name.find(".layers.") != std::string::npos;
  }

  double momentum_;
  std::int64_t iterations_;
  AdamW adamw_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, MyMuon, "my-muon", "1.0.0", "Muon: orthogonal updates of the matrices of layers");
CONSIST_PLUGIN_OPTIONS({"momentum", consist::OptionKind::real, "0.95", "of matrices, Nesterov's", "0..<1"},
                       {"iterations", consist::OptionKind::integer, "5", "of Newton-Schulz", "1..100"});
