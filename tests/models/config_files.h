// config.json files as they are published, to be changed field by field.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "consist/error.h"
#include "tests/models/families.h"

namespace consist::test {

inline nlohmann::json llama_json() {
  return nlohmann::json::parse(
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 256,
    "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": null, "tie_word_embeddings": false,
    "attention_bias": false, "attention_dropout": 0.0, "mlp_bias": false, "pretraining_tp": 1, "initializer_range": 0.02,
    "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16", "transformers_version": "4.40.0", "use_cache": true})");
}

inline nlohmann::json qwen_json(const char* architecture, const char* type) {
  nlohmann::json file = llama_json();
  file["architectures"] = {architecture};
  file["model_type"] = type;
  file["use_sliding_window"] = false;
  file["sliding_window"] = 4096;  // as Qwen2.5's files have it beside use_sliding_window: false
  file["max_window_layers"] = 2;
  file.erase("mlp_bias");
  return file;
}

inline std::unique_ptr<Architecture> parse(const nlohmann::json& file, const char* family = "llama") {
  return test::family(family)->from_config(file.dump());
}

/// The file must be refused by a message that has `field` in it.
inline void expect_refused(const nlohmann::json& file, const std::string& field, const char* family = "llama") {
  try {
    parse(file, family);
    FAIL() << "accepted: " << file.dump();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(field));
  }
}

}  // namespace consist::test
