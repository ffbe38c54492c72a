// A small decoder built straight from layers, for tests of passes that should not depend on a model plugin.
#pragma once

#include <string>

#include "consist/builder.h"
#include "consist/layers.h"
#include "consist/model.h"

namespace consist::test {

struct TinyShape {
  std::int64_t layers = 2, hidden = 16, heads = 2, kv_heads = 1, head_dim = 8, ffn = 24, vocabulary = 32;
  bool tied = true;
};

class TinyModel final : public Architecture {
 public:
  explicit TinyModel(TinyShape shape = {}) : s_(shape) {}

  ModelSizes sizes() const override {
    return {.layers = s_.layers, .heads = s_.heads, .kv_heads = s_.kv_heads, .head_dim = s_.head_dim, .hidden = s_.hidden, .ffn = s_.ffn,
            .vocabulary = s_.vocabulary};
  }
  std::string config_json() const override { return "{}"; }

  TensorId build(Builder& b, TensorId ids, TensorId targets, double scale) const override {
    const std::int64_t sequence = b[ids].shape[1];
    const TensorId table = b.constant("rope.table", {sequence, s_.head_dim}, [](std::span<float> out) {
      for (float& v : out) v = 0.5F;
    });
    const TensorId embed = b.parameter("embed.weight", {s_.vocabulary, s_.hidden}, 0, 0.02F, true);
    TensorId x = layers::embedding(b, ids, embed, "embed");
    TensorId residual = no_tensor;
    for (std::int64_t layer = 0; layer < s_.layers; ++layer) {
      b.tag.layer = static_cast<std::int16_t>(layer);
      const std::string name = "layers." + std::to_string(layer) + ".";
      auto weight = [&](const char* part, std::int64_t out, std::int64_t in) {
        return b.parameter(name + part + ".weight", {out, in}, 0, 0.02F, true);
      };
      auto norm = [&](const char* part) { return b.parameter(name + part + ".weight", {s_.hidden}, 1, 0, false); };
      auto n1 = layers::rms_norm(b, x, residual, norm("norm1"), 1e-6, name + "norm1");
      auto q = layers::linear(b, n1.y, weight("q", s_.heads * s_.head_dim, s_.hidden), no_tensor, name + "q");
      auto k = layers::linear(b, n1.y, weight("k", s_.kv_heads * s_.head_dim, s_.hidden), no_tensor, name + "k");
      auto v = layers::linear(b, n1.y, weight("v", s_.kv_heads * s_.head_dim, s_.hidden), no_tensor, name + "v");
      q = layers::rope(b, q, table, no_tensor, s_.head_dim, 1e-6, name + "q.rope");
      k = layers::rope(b, k, table, no_tensor, s_.head_dim, 1e-6, name + "k.rope");
      auto o = layers::attention(b, q, k, v, s_.head_dim, name + "attention");
      o = layers::linear(b, o, weight("o", s_.hidden, s_.heads * s_.head_dim), no_tensor, name + "o");
      auto n2 = layers::rms_norm(b, o, n1.residual, norm("norm2"), 1e-6, name + "norm2");
      auto gate = layers::linear(b, n2.y, weight("gate", s_.ffn, s_.hidden), no_tensor, name + "gate");
      auto up = layers::linear(b, n2.y, weight("up", s_.ffn, s_.hidden), no_tensor, name + "up");
      x = layers::linear(b, layers::swiglu(b, gate, up, name + "swiglu"), weight("down", s_.hidden, s_.ffn), no_tensor, name + "down");
      residual = n2.residual;
    }
    b.tag.layer = -1;
    auto last = layers::rms_norm(b, x, residual, b.parameter("norm.weight", {s_.hidden}, 1, 0, false), 1e-6, "norm");
    const TensorId head = s_.tied ? embed : b.parameter("head.weight", {s_.vocabulary, s_.hidden}, 0, 0.02F, true);
    return layers::lm_head_loss(b, last.y, head, targets, scale, "loss");
  }

 private:
  TinyShape s_;
};

}  // namespace consist::test
