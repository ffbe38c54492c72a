// AdamW whose moments are 8 bits each (after Dettmers et al., 2022, arXiv 2110.02861): E4M3 numbers that share a scale block by
// block. Of the second moment the root is kept, which needs half the range. Vectors, and matrices whose rows no blocks fill, are
// Consist's AdamW. Its rule is expressions (consist/map_update.h), which every device computes.
#include "consist/optimizer.h"

#include <string>

#include "consist/error.h"
#include "consist/expression.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

class Adamw8bit final : public Optimizer {
 public:
  explicit Adamw8bit(const Options& options)
      : beta1_(options.real("beta1")),
        beta2_(options.real("beta2")),
        epsilon_(options.real("epsilon")),
        block_(options.integer("block")),
        adamw_({.beta1 = beta1_, .beta2 = beta2_, .epsilon = epsilon_}) {}

  std::vector<OptimizerState> states(const Parameter& parameter, const Shape& shape) const override {
    if (!is_in_blocks(shape)) return adamw_.states(parameter, shape);
    return {{"codes1", StateShape::like_parameter, DType::e4m3},
            {"codes2", StateShape::like_parameter, DType::e4m3},
            {"scales1", StateShape::blocks, DType::f32, block_},
            {"scales2", StateShape::blocks, DType::f32, block_}};
  }
  std::size_t scalar_count() const override { return adamw_.scalar_count(); }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    adamw_.write_scalars(step, learning_rate, out);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    if (group.stochastic_rounding) throw UsageError("adamw-8bit has no stochastic rounding: leave it out");
    UpdateGroup in_blocks = group, rest = group;
    std::erase_if(in_blocks.parameters, [&](const UpdatedParameter& p) { return !is_in_blocks(builder[p.value].shape); });
    std::erase_if(rest.parameters, [&](const UpdatedParameter& p) { return is_in_blocks(builder[p.value].shape); });
    if (!in_blocks.parameters.empty()) emit_update(builder, "map_update_4", scalars, clip, in_blocks, rule(group.weight_decay));
    if (!rest.parameters.empty()) adamw_.update(builder, scalars, clip, rest);
  }
  std::string describe() const override { return adamw_.describe() + ", 8-bit moments in blocks of " + std::to_string(block_); }

 private:
  /// a: the weight, b: its gradient, c: rate and corrections, d: clip, e and f: codes, g and h: their scales, i and j: the
  /// largest of a block.
  Attributes rule(double weight_decay) const {
    const std::string beta1 = number_text(beta1_), beta2 = number_text(beta2_);
    const std::string moments = "t0=d[0]*b; t1=" + beta1 + "*g[b]*e+(1-" + beta1 + ")*t0; t2=h[b]*f; t3=sqrt(" + beta2 +
                                "*t2*t2+(1-" + beta2 + ")*t0*t0);";
    const std::string scales = "t4=max(i[b],1e-30)/448; t5=max(j[b],1e-30)/448;";
    return {{"block", block_},
            {"largest", moments + "abs(t1);t3"},
            {"f", moments + scales + "a*(1-c[0]*" + number_text(weight_decay) + ")-c[0]/c[1]*t1/(t3/sqrt(c[2])+" +
                      number_text(epsilon_) + ");t1/t4;t3/t5;t4;t5"}};
  }
  bool is_in_blocks(const Shape& shape) const { return shape.rank() >= 2 && shape.last() % block_ == 0; }

  double beta1_, beta2_, epsilon_;
  std::int64_t block_;
  AdamW adamw_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Adamw8bit, "adamw-8bit", "1.0.0", "AdamW with 8-bit moments in blocks");
CONSIST_PLUGIN_OPTIONS({"beta1", consist::OptionKind::real, "0.9", "of the first moment", "0..<1"},
                       {"beta2", consist::OptionKind::real, "0.95", "of the second moment", "0..<1"},
                       {"epsilon", consist::OptionKind::real, "1e-8", "added to the root of the second moment", "0..1"},
                       {"block", consist::OptionKind::integer, "64", "neighbouring elements that share a scale", "1..65536"});
