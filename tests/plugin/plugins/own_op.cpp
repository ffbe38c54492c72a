// A model with an op of its own, y = max(x, 0)², whose traits are those of any activation. OP_ELSEWHERE: it uses the op of that
// name, which another plugin brings.
#include <memory>
#include <string>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/layers.h"
#include "consist/model.h"
#include "consist/op.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

#ifdef OP_ELSEWHERE
constexpr const char* op = OP_ELSEWHERE;
#else
constexpr const char* op = "squared_relu";

/// Types and placements of both ops: all tensors are alike.
class Elementwise : public Op {
 public:
  Types infer(const Types& inputs, const Attributes& /*attributes*/) const override {
    for (const auto& input : inputs) {
      if (!input || *input != *inputs[0]) throw ProgramError("op '" + std::string(name()) + "': inputs must be of one type");
    }
    return {inputs.at(0)};
  }
  void shard(AxisSharding& axis, const Types& /*inputs*/, const Attributes& /*attributes*/) const override {
    const Placement placement = axis.inputs[0].is_partial() ? Placement::replicate() : axis.inputs[0];
    for (Placement& input : axis.inputs) input = placement;
    axis.outputs = {placement};
  }
};

class SquaredReluGrad final : public Elementwise {
 public:
  std::string_view name() const noexcept override { return "squared_relu_grad"; }
};

class SquaredRelu final : public Elementwise {
 public:
  std::string_view name() const noexcept override { return "squared_relu"; }
  Separable separable() const noexcept override { return Separable::tokens; }
  std::optional<ChannelSplit> channel_split(const Attributes& /*attributes*/) const override { return ChannelSplit{.inputs = 1}; }
  void differentiate(Differentiator& d, const Instruction& forward) const override {
    const TensorId x = forward.inputs[0];
    d.accumulate_grad(
        x, d.build().emit_one("squared_relu_grad", {x, d.gradient(forward.outputs[0])}, {}, d.program()[x].name + ".grad"));
  }
};

struct Registered {
  Registered() {
    registry().add(std::make_unique<SquaredRelu>());
    registry().add(std::make_unique<SquaredReluGrad>());
  }
} registered;
#endif

/// One layer: a norm, and an MLP without a gate.
class Tiny final : public Architecture {
 public:
  ModelSizes sizes() const override {
    return {.layers = 1, .heads = 1, .kv_heads = 1, .head_dim = hidden, .hidden = hidden, .ffn = ffn, .vocabulary = words};
  }
  std::string config_json() const override { return "{}"; }
  TensorId build(Builder& b, TensorId ids, TensorId targets, double loss_scale) const override {
    const auto weight = [&](const char* name, std::int64_t out, std::int64_t in) {
      return b.parameter(name, {out, in}, 0, 0.02F, true);
    };
    const TensorId table = weight("embed.weight", words, hidden);
    TensorId x = layers::embedding(b, ids, table, "embed");
    b.tag.layer = 0;
    const auto norm = layers::rms_norm(b, x, no_tensor, b.parameter("norm1.weight", {hidden}, 1, 0, false), 1e-6, "norm1");
    TensorId up = layers::linear(b, norm.y, weight("up.weight", ffn, hidden), no_tensor, "up");
    up = b.emit_one(op, {up}, {}, "activation");
    x = layers::linear(b, up, weight("down.weight", hidden, ffn), no_tensor, "down");
    b.tag.layer = -1;
    const auto last = layers::rms_norm(b, x, norm.residual, b.parameter("norm2.weight", {hidden}, 1, 0, false), 1e-6, "norm2");
    return layers::lm_head_loss(b, last.y, table, targets, loss_scale, "loss");
  }

 private:
  static constexpr std::int64_t hidden = 16, ffn = 32, words = 64;
};

class OwnOp final : public Model {
 public:
  explicit OwnOp(const Options& /*options*/) {}
  std::vector<ModelPreset> presets() const override { return {{"own-op-tiny", "a test"}}; }
  std::unique_ptr<Architecture> from_preset(std::string_view /*name*/) const override { return std::make_unique<Tiny>(); }
  bool accepts(std::string_view /*architecture*/) const override { return false; }
  std::unique_ptr<Architecture> from_config(std::string_view /*json*/) const override { throw DataError("it has presets only"); }
};

}  // namespace

#ifdef OP_ELSEWHERE
CONSIST_PLUGIN(model, consist::Model, OwnOp, "foreign-op", "1.0.0", "a model with an op of another plugin");
#else
CONSIST_PLUGIN(model, consist::Model, OwnOp, "own-op", "1.0.0", "a model with an op of its own");
#endif
CONSIST_PLUGIN_NO_OPTIONS();
