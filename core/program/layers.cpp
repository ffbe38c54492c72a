#include "consist/layers.h"

#include "consist/error.h"

namespace consist::layers {

TensorId embedding(Builder& b, TensorId ids, TensorId table, std::string name, std::int64_t padding_id) {
  Attributes attributes;
  if (padding_id != -1) attributes.set("padding_id", padding_id);
  return b.emit_one("embedding", {ids, table}, std::move(attributes), std::move(name));
}

TensorId linear(Builder& b, TensorId x, TensorId weight, TensorId bias, std::string name) {
  std::vector<TensorId> inputs{x, weight};
  if (bias != no_tensor) inputs.push_back(bias);
  return b.emit_one("linear", std::move(inputs), {}, std::move(name));
}

Normed rms_norm(Builder& b, TensorId x, TensorId residual, TensorId weight, double epsilon, std::string name) {
  const std::vector<TensorId> out =
      b.emit("rms_norm", {x, residual, weight}, {{"epsilon", epsilon}}, {name, name + ".residual", name + ".rstd"});
  return {out[0], residual == no_tensor ? x : out[1]};
}

TensorId rope(Builder& b, TensorId x, TensorId table, TensorId norm_weight, std::int64_t head_dim, double epsilon,
              std::string name) {
  std::vector<TensorId> inputs{x, table};
  if (norm_weight != no_tensor) inputs.push_back(norm_weight);
  return b.emit("rope", std::move(inputs), {{"head_dim", head_dim}, {"epsilon", epsilon}}, {name, name + ".rstd"})[0];
}

TensorId attention(Builder& b, TensorId q, TensorId k, TensorId v, std::int64_t head_dim, std::string name, std::int64_t window,
                   TensorId document_start) {
  if (window < 0) throw UsageError(name + ": the window is " + std::to_string(window) + "; it must be at least 1, or 0 for none");
  Attributes attributes{{"head_dim", head_dim}};
  // A window that reaches the first position from the last one hides nothing, and devices without windows can run the rest.
  if (window > 0 && window < b[q].shape[1]) attributes.set("window", window);
  std::vector<TensorId> inputs{q, k, v};
  if (document_start != no_tensor) inputs.push_back(document_start);
  return b.emit("attention", std::move(inputs), std::move(attributes), {name, name + ".lse"})[0];
}

TensorId swiglu(Builder& b, TensorId gate, TensorId up, std::string name) {
  return b.emit_one("swiglu", {gate, up}, {}, std::move(name));
}

TensorId lm_head_loss(Builder& b, TensorId x, TensorId weight, TensorId targets, double scale, std::string name, TensorId mask) {
  if (mask != no_tensor) {
    if (b.program().loss_count != no_tensor) throw ProgramError("a second loss with a mask: each would need a count of its own");
    targets = b.emit_one("masked_targets", {targets, mask}, {}, name + ".targets");
    b.program().loss_count = b.emit_one("count_targets", {targets}, {}, name + ".count");
  }
  return b.emit_one("lm_head_loss", {x, weight, targets}, {{"scale", scale}}, std::move(name));
}

}  // namespace consist::layers
