// Adafactor (Shazeer & Stern, 2018, arXiv 1804.04235) in the form of torch.optim.Adafactor: of a matrix's second moments the sums
// of rows and columns alone are kept. Its ops lie in the plugin "adafactor-ops" of kind kernels.
#include <consist/optimizer.h>
#include <consist/plugin.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace {

using namespace consist;

class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const Options& options)
      : decay_(options.real("decay")),
        constants_{{"epsilon1", options.real("epsilon1")},
                   {"epsilon2", options.real("epsilon2")},
                   {"threshold", options.real("threshold")}} {}

  std::vector<OptimizerState> states(const Parameter&, const Shape& shape) const override {
    if (shape.rank() != 2) return {{"variance", StateShape::like_parameter, DType::f32}};
    return {{"row", StateShape::rows, DType::f32}, {"column", StateShape::columns, DType::f32}};
  }
  std::size_t scalar_count() const override { return 3; }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    out[0] = static_cast<float>(learning_rate);
    out[1] = static_cast<float>(std::pow(static_cast<double>(step), decay_));
    out[2] = static_cast<float>(std::min(learning_rate, 1 / std::sqrt(static_cast<double>(step))));
  }

  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    for (const UpdatedParameter& p : group.parameters) {
      const Shape shape = builder[p.value].shape;
      Attributes attributes = constants_;
      attributes.set("weight_decay", group.weight_decay);
      attributes.set("elements", shape.elements());
      std::vector<TensorId> moments{no_tensor, no_tensor, no_tensor, p.states[0]};  // row, column, sum of row, variance
      if (shape.rank() == 2) {
        attributes.set("rows", shape[0]);
        attributes.set("columns", shape[1]);
        // Where ranks hold parts of the matrix both sums are partial; the next op wants them whole, and the builder reduces them.
        const std::vector<TensorId> sums = builder.emit("adafactor_sums", {clip, p.gradient});
        moments = builder.emit("adafactor_moments", {scalars, clip, sums[0], sums[1], p.states[0], p.states[1]}, attributes);
        moments.push_back(no_tensor);
      }
      const TensorId squares = builder.emit_one("sum_of_squares", {p.master == no_tensor ? p.value : p.master});
      std::vector<TensorId> inputs{scalars, clip, p.gradient};
      inputs.insert(inputs.end(), moments.begin(), moments.end());
      const std::vector<TensorId> size = builder.emit("adafactor_size", inputs, attributes);
      if (size[0] != no_tensor) inputs.back() = size[0];
      inputs.insert(inputs.end(), {p.value, p.master, squares, size[1]});
      builder.emit("adafactor", inputs, attributes, {p.parameter->name, p.parameter->name + ".master"});
    }
  }
  std::string describe() const override { return "Adafactor, decay " + std::to_string(decay_); }

 private:
  double decay_;
  Attributes constants_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Adafactor, "my-adafactor", "1.0.0",
               "Adafactor: second moments by rows and columns");
CONSIST_PLUGIN_OPTIONS({"decay", consist::OptionKind::real, "-0.8", "exponent of the step in the decay of second moments",
                        "-1..0"},
                       {"epsilon1", consist::OptionKind::real, "1.1920928955078125e-07", "least mean of second moments", "0..1"},
                       {"epsilon2", consist::OptionKind::real, "1e-3", "least root mean square of a parameter", "0..1"},
                       {"threshold", consist::OptionKind::real, "1", "largest root mean square of an update", "0..1e6"});
