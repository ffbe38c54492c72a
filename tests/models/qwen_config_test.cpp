// config.json of Qwen's dense models: biases, norms of heads, and windows of layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/config_files.h"

namespace consist {
namespace {

using nlohmann::json;
using test::BuiltModel;
using test::expect_refused;
using test::parse;
using test::qwen_json;

TEST(QwenConfig, Qwen2HasBiasesAndNoHeadNorms) {
  const BuiltModel built(*parse(qwen_json("Qwen2ForCausalLM", "qwen2"), "qwen"));
  EXPECT_EQ(built.shape("model.layers.1.self_attn.k_proj.bias"), "[32]");
  EXPECT_EQ(built.shape("model.layers.1.self_attn.k_norm.weight"), "absent");
}

TEST(QwenConfig, Qwen3HasHeadNormsAndNoBiases) {
  json file = qwen_json("Qwen3ForCausalLM", "qwen3");
  file["head_dim"] = 32;
  const BuiltModel built(*parse(file, "qwen"));
  EXPECT_EQ(built.shape("model.layers.1.self_attn.k_norm.weight"), "[32]");
  EXPECT_EQ(built.shape("model.layers.1.self_attn.q_proj.weight"), "[128,64]");
  EXPECT_EQ(built.shape("model.layers.1.self_attn.k_proj.bias"), "absent");
}

TEST(QwenConfig, Qwen3WithoutHeadDimHasThatOfTransformers) {
  EXPECT_EQ(parse(qwen_json("Qwen3ForCausalLM", "qwen3"), "qwen")->sizes().head_dim, 128);
  EXPECT_EQ(parse(qwen_json("Qwen2ForCausalLM", "qwen2"), "qwen")->sizes().head_dim, 16);
}

TEST(QwenConfig, RefusesByNameWhatItWouldComputeWrongly) {
  json file = qwen_json("Qwen3ForCausalLM", "qwen3");
  file["attention_bias"] = true;
  expect_refused(file, "attention_bias", "qwen");
  for (const auto& [architecture, type] : {std::pair{"Qwen2ForCausalLM", "qwen2"}, {"Qwen3ForCausalLM", "qwen3"}}) {
    file = qwen_json(architecture, type);
    file["layer_types"] = {"sliding_attention", "full_attention"};  // without use_sliding_window
    expect_refused(file, "layer_types", "qwen");
    file["use_sliding_window"] = true;
    file["layer_types"] = {"sliding_attention"};  // of two layers
    expect_refused(file, "layer_types", "qwen");
    file["layer_types"] = {"sliding_attention", "chunked_attention"};
    expect_refused(file, "layer_types", "qwen");
    file["layer_types"] = {"sliding_attention", "full_attention"};
    file["sliding_window"] = 0;
    expect_refused(file, "sliding_window", "qwen");
  }
}

// As transformers 4.57 reads these fields.
TEST(QwenConfig, WindowsAreOfTheLayersThatTheFileNames) {
  json file = qwen_json("Qwen2ForCausalLM", "qwen2");
  const auto windows = [&file]() {
    const auto sizes = parse(file, "qwen")->sizes();
    return std::pair(sizes.window, sizes.windowed_layers);
  };
  file["sliding_window"] = 16;
  EXPECT_EQ(windows(), std::pair(std::int64_t{0}, std::int64_t{0}));  // the switch is off
  file["use_sliding_window"] = true;
  EXPECT_EQ(windows().first, 0);  // max_window_layers is 28
  file["max_window_layers"] = 1;
  EXPECT_EQ(windows(), std::pair(std::int64_t{16}, std::int64_t{1}));
  file["max_window_layers"] = 0;
  EXPECT_EQ(windows(), std::pair(std::int64_t{16}, std::int64_t{2}));
  file["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(windows(), std::pair(std::int64_t{16}, std::int64_t{1}));
  const json exported = json::parse(parse(file, "qwen")->config_json());
  EXPECT_EQ(exported["sliding_window"], 16);
  EXPECT_EQ(exported["use_sliding_window"], true);
  EXPECT_EQ(exported["layer_types"], file["layer_types"]);
  EXPECT_EQ(parse(exported, "qwen")->sizes().windowed_layers, 1);
}

TEST(QwenConfig, GoesByTheListOfArchitecturesAlone) {
  json file = qwen_json("Qwen3ForCausalLM", "qwen3");
  file["_name_or_path"] = "Qwen2ForCausalLM";
  const BuiltModel built(*parse(file, "qwen"));
  EXPECT_EQ(built.shape("model.layers.0.self_attn.q_proj.bias"), "absent");
}

}  // namespace
}  // namespace consist
