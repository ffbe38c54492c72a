// config.json: published files' forms are read, fields that would change the computation are refused by name. These are of Llama
// and of all families; those of Qwen and of mixtures have files of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "tests/models/config_files.h"

namespace consist {
namespace {

using nlohmann::json;
using test::BuiltModel;
using test::expect_refused;
using test::llama_json;
using test::parse;
using test::qwen_json;

TEST(LlamaConfig, ReadsWhatAPublishedFileSays) {
  const auto architecture = parse(llama_json());
  const ModelSizes sizes = architecture->sizes();
  EXPECT_EQ(sizes.hidden, 64);
  EXPECT_EQ(sizes.layers, 2);
  EXPECT_EQ(sizes.heads, 4);
  EXPECT_EQ(sizes.kv_heads, 2);
  EXPECT_EQ(sizes.head_dim, 16);
  EXPECT_EQ(sizes.vocabulary, 128);
  EXPECT_EQ(sizes.max_sequence, 256);
  const BuiltModel built(*architecture);
  EXPECT_EQ(built.shape("lm_head.weight"), "[128,64]");
  EXPECT_EQ(built.shape("model.layers.1.mlp.up_proj.weight"), "[96,64]");
  for (const Instruction& i : built.program.instructions) {
    if (i.op->name() == "rms_norm") {
      EXPECT_DOUBLE_EQ(i.attributes.real("epsilon"), 1e-5);
    }
  }
}

TEST(LlamaConfig, FillsInWhatOldFilesLeaveOut) {
  json file = llama_json();
  for (const char* field : {"num_key_value_heads", "rope_theta", "rope_scaling", "attention_bias", "attention_dropout",
                            "mlp_bias", "initializer_range", "rms_norm_eps", "hidden_act", "tie_word_embeddings"}) {
    file.erase(field);
  }
  const auto architecture = parse(file);
  EXPECT_EQ(architecture->sizes().kv_heads, 4);
  const json written = json::parse(architecture->config_json());
  EXPECT_EQ(written["rope_theta"], 10000.0);
  EXPECT_EQ(written["rms_norm_eps"], 1e-6);
  EXPECT_EQ(written["tie_word_embeddings"], false);
}

TEST(LlamaConfig, TakesAHeadDimOfItsOwn) {
  json file = llama_json();
  file["head_dim"] = 24;
  EXPECT_EQ(BuiltModel(*parse(file)).shape("model.layers.0.self_attn.q_proj.weight"), "[96,64]");
}

TEST(LlamaConfig, NeedsAHeadDimWhereHeadsDoNotDivideTheHiddenSize) {
  json file = llama_json();
  file["hidden_size"] = 66;
  expect_refused(file, "head_dim");
  file["head_dim"] = 16;
  EXPECT_EQ(parse(file)->sizes().head_dim, 16);
}

TEST(LlamaConfig, NamesAFieldThatIsMissing) {
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    json file = llama_json();
    file.erase(field);
    expect_refused(file, field);
    file[field] = nullptr;
    expect_refused(file, field);
  }
}

TEST(LlamaConfig, NamesAFieldThatIsMalformed) {
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "num_key_value_heads", "max_position_embeddings"}) {
    for (const json& value : {json(0), json(-4), json("64"), json(6.5), json::array(), json(true), json(1ULL << 63)}) {
      json file = llama_json();
      file[field] = value;
      expect_refused(file, field);
    }
  }
  for (const char* field : {"rms_norm_eps", "rope_theta", "initializer_range"}) {
    for (const json& value : {json(-1.0), json("1e-5"), json::object()}) {
      json file = llama_json();
      file[field] = value;
      expect_refused(file, field);
    }
  }
  json file = llama_json();
  file["tie_word_embeddings"] = "yes";
  expect_refused(file, "tie_word_embeddings");
  file = llama_json();
  file["num_key_value_heads"] = 3;
  expect_refused(file, "num_key_value_heads");
  file = llama_json();
  file["head_dim"] = 15;
  expect_refused(file, "head_dim");
}

TEST(LlamaConfig, RefusesSizesWhoseProductsOverflow) {
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "head_dim"}) {
    json file = llama_json();
    file["head_dim"] = 16;
    file[field] = std::int64_t{1} << 40;
    expect_refused(file, field);
  }
}

TEST(LlamaConfig, RefusesByNameWhatItWouldComputeWrongly) {
  const std::vector<std::pair<const char*, json>> fields{{"hidden_act", "gelu"},
                                                         {"attention_bias", true},
                                                         {"mlp_bias", true},
                                                         {"attention_dropout", 0.1},
                                                         {"use_sliding_window", true},
                                                         {"sliding_window", 4096},
                                                         {"layer_types", {"full_attention", "sliding_attention"}},
                                                         {"is_causal", false},
                                                         {"quantization_config", {{"quant_method", "gptq"}}},
                                                         {"partial_rotary_factor", 0.5},
                                                         {"num_experts", 8},
                                                         {"num_local_experts", 8},
                                                         {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}},
                                                         {"rope_scaling", {{"rope_type", "yarn"}}},
                                                         {"rope_scaling", {{"rope_type", "longrope"}}},
                                                         {"rope_scaling", {{"rope_type", "linear"}, {"factor", 0.0}}},
                                                         {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}},
                                                         {"rope_scaling", "linear"}};
  for (const auto& [field, value] : fields) {
    json file = llama_json();
    file[field] = value;
    expect_refused(file, field);
  }
}

TEST(LlamaConfig, NamesTheUnknownRopeType) {
  json file = llama_json();
  file["rope_scaling"] = {{"rope_type", "longrope"}, {"factor", 4.0}};
  expect_refused(file, "longrope");
}

TEST(LlamaConfig, RefusesTextThatIsNoJsonObject) {
  const auto llama = test::family("llama");
  for (const char* text : {"", "{", "[1]", "\"a\"", "{\"architectures\": [\"LlamaForCausalLM\"]", "\xff\xfe"}) {
    EXPECT_THROW(llama->from_config(text), DataError) << text;
  }
}

/// The id whose row of the embedding gets no gradient; -1: there is none.
std::int64_t padding_id(const json& file) {
  const BuiltModel built(*parse(file));
  for (const Instruction& i : built.program.instructions) {
    if (i.op->name() == "embedding") return i.attributes.integer_or("padding_id", -1);
  }
  ADD_FAILURE() << "no embedding";
  return -1;
}

TEST(LlamaConfig, ThePadTokensRowGetsNoGradient) {
  json file = llama_json();
  EXPECT_EQ(padding_id(file), -1);
  file["pad_token_id"] = nullptr;
  EXPECT_EQ(padding_id(file), -1);
  file["pad_token_id"] = 0;
  EXPECT_EQ(padding_id(file), 0);
  file["pad_token_id"] = -1;  // as nn.Embedding counts: the last row
  EXPECT_EQ(padding_id(file), 127);
  EXPECT_EQ(json::parse(parse(file)->config_json())["pad_token_id"], -1);
  for (const std::int64_t beyond : {128, -129}) {
    file["pad_token_id"] = beyond;
    expect_refused(file, "pad_token_id");
  }
}

TEST(LlamaConfig, RefusesAModelTypeThatContradictsTheArchitecture) {
  json file = llama_json();
  file["model_type"] = "mistral";
  expect_refused(file, "\"mistral\"");
  file["model_type"] = 7;
  expect_refused(file, "model_type");
  file.erase("model_type");
  EXPECT_EQ(parse(file)->config_json(), parse(llama_json())->config_json());
  expect_refused(qwen_json("Qwen2ForCausalLM", "qwen3"), "model_type", "qwen");
}

TEST(LlamaConfig, HandsTheTokenIdsOnToAnExport) {
  json file = llama_json();
  file["eos_token_id"] = {2, 7};
  file["pad_token_id"] = 5;
  const json written = json::parse(parse(file)->config_json());
  EXPECT_EQ(written["bos_token_id"], 1);
  EXPECT_EQ(written["eos_token_id"], json({2, 7}));
  EXPECT_EQ(written["pad_token_id"], 5);
}

TEST(LlamaConfig, ManyKeysTakeLinearTime) {
  json file = llama_json();
  for (int i = 0; i < 40'000; ++i) file["key" + std::to_string(i)] = i;
  const std::string text = file.dump();
  const auto llama = test::family("llama");
  const std::clock_t begin = std::clock();
  EXPECT_NO_THROW(llama->from_config(text));
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 0.6) << "of the processor's seconds";
}

json mixtral_json() {
  json file = llama_json();
  file.update(json{{"architectures", {"MixtralForCausalLM"}}, {"model_type", "mixtral"}, {"num_attention_heads", 16}});
  return file;
}

// The defaults of the configuration classes of transformers 4.57 and 5.24.
TEST(ConfigDefaults, OfFieldsThatAFileLeavesOutAreThoseOfItsFamily) {
  struct Family {
    const char* plugin;
    json file;
    std::int64_t kv_heads;
    double rope_theta, norm_epsilon;
  };
  const Family families[] = {{"llama", llama_json(), 64, 1e4, 1e-6},
                             {"qwen", qwen_json("Qwen2ForCausalLM", "qwen2"), 32, 1e4, 1e-6},
                             {"qwen", qwen_json("Qwen3ForCausalLM", "qwen3"), 32, 1e4, 1e-6},
                             {"qwen", qwen_json("Qwen3MoeForCausalLM", "qwen3_moe"), 4, 1e4, 1e-6},
                             {"mixtral", mixtral_json(), 8, 1e6, 1e-5}};
  for (Family family : families) {
    SCOPED_TRACE(family.file["architectures"].dump());
    family.file.update(json{{"num_attention_heads", 64}, {"head_dim", 16}});
    if (family.file["model_type"] == "qwen3_moe") family.file["num_experts"] = 8;
    for (const char* field : {"num_key_value_heads", "rope_theta", "rms_norm_eps"}) family.file.erase(field);
    const json written = json::parse(parse(family.file, family.plugin)->config_json());
    EXPECT_EQ(written["num_key_value_heads"], family.kv_heads);
    EXPECT_EQ(written["rope_theta"], family.rope_theta);
    EXPECT_EQ(written["rms_norm_eps"], family.norm_epsilon);
    family.file["num_key_value_heads"] = nullptr;
    EXPECT_EQ(parse(family.file, family.plugin)->sizes().kv_heads, 64);
    family.file["rope_parameters"] = {{"rope_type", "default"}};  // without a base of its own
    EXPECT_EQ(json::parse(parse(family.file, family.plugin)->config_json())["rope_theta"], family.rope_theta);
  }
  const json mixtral = json::parse(parse(mixtral_json(), "mixtral")->config_json());
  EXPECT_EQ(mixtral["num_local_experts"], 8);
  EXPECT_EQ(mixtral["num_experts_per_tok"], 2);
  EXPECT_EQ(mixtral["router_aux_loss_coef"], 0.001);
  json none = mixtral_json();
  none["num_local_experts"] = 0;
  expect_refused(none, "num_local_experts", "mixtral");
}

TEST(Families, AcceptTheirOwnArchitectures) {
  const auto llama = test::family("llama"), qwen = test::family("qwen");
  EXPECT_TRUE(llama->accepts("LlamaForCausalLM"));
  EXPECT_FALSE(llama->accepts("Qwen3ForCausalLM"));
  EXPECT_FALSE(llama->accepts("LlamaForSequenceClassification"));
  for (const char* name : {"Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"})
    EXPECT_TRUE(qwen->accepts(name)) << name;
  EXPECT_FALSE(qwen->accepts("LlamaForCausalLM"));
  EXPECT_FALSE(qwen->accepts("Qwen2MoeForCausalLM"));
}

TEST(Families, RefuseAnArchitectureOfOthers) {
  expect_refused(qwen_json("MistralForCausalLM", "mistral"), "MistralForCausalLM", "qwen");
  expect_refused(qwen_json("Qwen3ForCausalLM", "qwen3"), "Qwen3ForCausalLM", "llama");
  json file = llama_json();
  file.erase("architectures");
  expect_refused(file, "architectures");
}

}  // namespace
}  // namespace consist
