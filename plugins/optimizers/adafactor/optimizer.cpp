// Adafactor (Shazeer & Stern, 2018, arXiv 1804.04235) in the form of torch.optim.Adafactor: of a matrix's second moments the sums
// of rows and columns alone are kept. Its rule is expressions (consist/expression.h), which every device computes.
#include "consist/optimizer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "consist/error.h"
#include "consist/expression.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

/// The inputs of an instruction, and the letters by which its expression reads them.
struct Inputs {
  std::vector<TensorId> tensors;

  std::string operator()(TensorId tensor, const char* how = "") {
    tensors.push_back(tensor);
    return std::string(1, static_cast<char>('a' + tensors.size() - 1)) + how;
  }
};

class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const Options& options)
      : decay_(options.real("decay")),
        epsilon1_(options.real("epsilon1")),
        epsilon2_(options.real("epsilon2")),
        threshold_(options.real("threshold")) {}

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
    if (group.stochastic_rounding) throw UsageError("adafactor has no stochastic rounding: leave it out");
    for (const UpdatedParameter& p : group.parameters) {
      const std::string elements = number_text(static_cast<double>(builder[p.value].shape.elements()));
      const Step step{builder, scalars, clip};
      const Moments moments = builder[p.value].shape.rank() == 2 ? of_matrix(step, p) : of_others(step, p);
      const TensorId weights = builder.emit_one("sum_of_squares", {p.master == no_tensor ? p.value : p.master}),
                     updates = sum_of_squares(step, p, moments);
      Inputs in;
      const std::string value = in(p.value), weight = p.master == no_tensor ? value : in(p.master);
      const std::string size = "sqrt(" + in(updates, "[0]") + "/" + elements + ")",
                        scale = "max(" + number_text(epsilon2_) + ",sqrt(" + in(weights, "[0]") + "/" + elements + "))",
                        rates = in(scalars);
      // The clip below 0 of a step that changes nothing is of all rules here.
      const std::string rate = scale + "*" + rates + "[2]/max(1," + size + "/" + number_text(threshold_) + ")",
                        kept = "(1-" + rates + "[0]*" + number_text(group.weight_decay) + ")",
                        moved = weight + "*" + kept + "-" + rate + "*" + update_of(in, clip, p.gradient, moments),
                        rule = "t0=select(-" + in(clip, "[0]") + "," + weight + "," + moved + ");t0";
      builder.emit("map_in_place", in.tensors, {{"f", p.master == no_tensor ? rule : rule + ";t0"}},
                   {p.parameter->name, p.parameter->name + ".master"});
    }
  }
  std::string describe() const override { return "Adafactor, decay " + std::to_string(decay_); }

 private:
  struct Step {
    Builder& builder;
    TensorId scalars, clip;
  };
  /// The means of a matrix's rows and columns, and the sum of the former; of others the variance of each element.
  struct Moments {
    TensorId row = no_tensor, column = no_tensor, sum = no_tensor, variance = no_tensor;
    std::int64_t rows = 0;
  };

  /// state := lerp(state, mean, 1 - decay), in place. `mean` is an expression of `other`, as b.
  static TensorId move(const Step& step, TensorId state, TensorId other, const std::string& mean) {
    return step.builder.emit_one("map_in_place", {state, other, step.scalars, step.clip},
                                 {{"f", "select(-d[0],a,a+c[1]*(" + mean + "-a))"}}, step.builder[state].name);
  }
  static Moments of_matrix(const Step& step, const UpdatedParameter& p) {
    const Shape shape = step.builder[p.value].shape;
    // Where ranks hold parts of the matrix both sums are partial; the next instructions want them whole, and the builder reduces
    // them.
    const auto sums = step.builder.emit("margins", {p.gradient, step.clip}, {{"f", std::string("square(a*b[0])")}});
    Moments m;
    m.rows = shape[0];
    m.row = move(step, p.states[0], sums[0], "b/" + std::to_string(shape[1]));
    m.column = move(step, p.states[1], sums[1], "b/" + std::to_string(shape[0]));
    m.sum = step.builder.emit_one("total", {m.row}, {{"f", std::string("a")}});
    return m;
  }
  static Moments of_others(const Step& step, const UpdatedParameter& p) {
    Moments m;
    m.variance = move(step, p.states[0], p.gradient, "square(d[0]*b)");
    return m;
  }
  /// An element of the update before its size is bounded.
  std::string update_of(Inputs& in, TensorId clip, TensorId gradient, const Moments& m) const {
    const std::string epsilon = number_text(epsilon1_), least = number_text(epsilon1_ * epsilon1_);
    const std::string estimate = m.variance != no_tensor
                                     ? in(m.variance)
                                     : in(m.row, "[r]") + "*" + in(m.column, "[c]") + "/max(" + in(m.sum, "[0]") + "/" +
                                           std::to_string(m.rows) + "," + epsilon + ")";
    return in(gradient) + "*" + in(clip, "[0]") + "/sqrt(max(" + estimate + "," + least + "))";
  }
  TensorId sum_of_squares(const Step& step, const UpdatedParameter& p, const Moments& m) const {
    Inputs in;
    const Attributes square{{"f", "square(" + update_of(in, step.clip, p.gradient, m) + ")"}, {"columns_only", std::int64_t{1}}};
    if (m.variance != no_tensor) return step.builder.emit_one("total", in.tensors, {{"f", square.string("f")}});
    return step.builder.emit_one("total", {step.builder.emit("margins", in.tensors, square)[1]}, {{"f", std::string("a")}});
  }

  double decay_, epsilon1_, epsilon2_, threshold_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Adafactor, "adafactor", "1.0.0", "Adafactor: second moments by rows and columns");
CONSIST_PLUGIN_OPTIONS({"decay", consist::OptionKind::real, "-0.8", "exponent of the step in the decay of second moments",
                        "-1..0"},
                       {"epsilon1", consist::OptionKind::real, "1.1920928955078125e-07", "least mean of second moments", "0..1"},
                       {"epsilon2", consist::OptionKind::real, "1e-3", "least root mean square of a parameter", "0..1"},
                       {"threshold", consist::OptionKind::real, "1", "largest root mean square of an update", "1e-9..1e6"});
