// config.json: published files' forms are read, fields that would change the computation are refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "tests/models/config_files.h"

namespace consist {
namespace {

using nlohmann::json;
using test::BuiltModel;
using test::expect_refused;
using test::llama_json;
using test::parse;
using test::qwen_json;
using testing::AllOf;
using testing::HasSubstr;

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
                                                         {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}},
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
  file["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  expect_refused(file, "yarn");
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

TEST(QwenConfig, AMixtureWithoutExpertsIsTheDenseModel) {
  json file = qwen_json("Qwen3MoeForCausalLM", "qwen3_moe");
  file["head_dim"] = 16;
  const auto architecture = parse(file, "qwen");
  EXPECT_THAT(architecture->config_json(), AllOf(HasSubstr("\"Qwen3ForCausalLM\""), HasSubstr("\"qwen3\"")));
  EXPECT_EQ(BuiltModel(*architecture).shape("model.layers.0.self_attn.q_norm.weight"), "[16]");
  for (const char* field : {"num_experts_per_tok", "moe_intermediate_size"}) {
    json mixture = file;
    mixture[field] = 8;  // without the number of experts
    expect_refused(mixture, field, "qwen");
    mixture[field] = 0;
    EXPECT_EQ(parse(mixture, "qwen")->config_json(), architecture->config_json()) << field;
  }
}

TEST(QwenConfig, TheNumberOfExpertsHasTheNameThatEitherTransformersWrites) {
  json file = qwen_json("Qwen3MoeForCausalLM", "qwen3_moe");
  file.update(json{{"head_dim", 16}, {"num_experts", 6}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 20}});
  json newer = file;
  newer.erase("num_experts");
  newer["num_local_experts"] = 6;  // transformers 5
  EXPECT_EQ(parse(newer, "qwen")->config_json(), parse(file, "qwen")->config_json());
  newer["num_experts"] = 6;
  EXPECT_EQ(parse(newer, "qwen")->config_json(), parse(file, "qwen")->config_json());
  newer["num_experts"] = 8;
  expect_refused(newer, "num_local_experts", "qwen");
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

TEST(QwenConfig, ReadsAndWritesMixtures) {
  json file = qwen_json("Qwen3MoeForCausalLM", "qwen3_moe");
  file.update(json{{"head_dim", 16},
                   {"num_hidden_layers", 5},
                   {"num_experts", 6},
                   {"num_experts_per_tok", 3},
                   {"moe_intermediate_size", 20},
                   {"norm_topk_prob", true},
                   {"output_router_logits", true},
                   {"router_aux_loss_coef", 0.25},
                   {"decoder_sparse_step", 2},
                   {"mlp_only_layers", {1}}});
  const auto architecture = parse(file, "qwen");
  const BuiltModel built(*architecture);
  const std::string hidden = std::to_string(architecture->sizes().hidden);
  for (const int layer : {0, 1, 2, 4})
    EXPECT_NE(built.shape("model.layers." + std::to_string(layer) + ".mlp.up_proj.weight"), "absent") << layer;
  const std::string experts = "model.layers.3.mlp.experts.*.";
  EXPECT_EQ(built.shape(experts + "{gate_proj,up_proj}.weight"), "[6,40," + hidden + "]");
  EXPECT_EQ(built.shape(experts + "down_proj.weight"), "[6," + hidden + ",20]");
  EXPECT_EQ(built.shape("model.layers.3.mlp.gate.weight"), "[6," + hidden + "]");
  EXPECT_EQ(built.program.auxiliary_losses.size(), 1U);
  const json written = json::parse(architecture->config_json());
  EXPECT_EQ(written["mlp_only_layers"], (json{0, 1, 2, 4}));
  for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "output_router_logits",
                            "router_aux_loss_coef"})
    EXPECT_EQ(written[field], file[field]) << field;
  EXPECT_EQ(parse(written, "qwen")->config_json(), architecture->config_json());

  for (const auto& [field, value] : std::vector<std::pair<const char*, json>>{{"num_experts_per_tok", 7},
                                                                              {"num_experts", -1},
                                                                              {"moe_intermediate_size", 0},
                                                                              {"decoder_sparse_step", 0},
                                                                              {"mlp_only_layers", {"all"}},
                                                                              {"use_sliding_window", true},
                                                                              {"router_aux_loss_coef", -1},
                                                                              {"router_z_loss_coef", -1},
                                                                              {"n_shared_experts", 1}}) {
    json wrong = file;
    wrong[field] = value;
    expect_refused(wrong, field, "qwen");
  }
  file["output_router_logits"] = false;
  EXPECT_TRUE(BuiltModel(*parse(file, "qwen")).program.auxiliary_losses.empty());
}

TEST(QwenConfig, RoutersMayTrainOnTheirZLoss) {
  json file = qwen_json("Qwen3MoeForCausalLM", "qwen3_moe");
  file.update(json{{"head_dim", 16},
                   {"num_hidden_layers", 5},
                   {"num_experts", 6},
                   {"mlp_only_layers", {1}},
                   {"num_experts_per_tok", 3},
                   {"router_aux_loss_coef", 0.25},
                   {"router_z_loss_coef", 0.5}});
  const auto attributes = [](const Architecture& architecture) {
    const BuiltModel built(architecture, 2, 8, 0.25);
    EXPECT_EQ(built.program.auxiliary_losses.size(), 1U);
    for (const Instruction& i : built.program.instructions) {
      if (i.op->name() == "balance_loss") return std::pair(i.attributes.real("balance"), i.attributes.real("z"));
    }
    return std::pair(-1.0, -1.0);
  };
  const double tokens = 16, layers = 4, micro_batch = 0.25 * tokens;  // its part of the mean over all that are summed
  const auto alone = parse(file, "qwen");
  EXPECT_DOUBLE_EQ(attributes(*alone).first, 0);
  EXPECT_DOUBLE_EQ(attributes(*alone).second, micro_batch * 0.5 / (tokens * layers));
  EXPECT_EQ(json::parse(alone->config_json())["router_z_loss_coef"], 0.5);
  const auto by_option = test::family("qwen", {{"router-z-loss", "0.125"}})->from_config(file.dump());
  EXPECT_DOUBLE_EQ(attributes(*by_option).second, micro_batch * 0.125 / (tokens * layers));
  file["output_router_logits"] = true;
  EXPECT_DOUBLE_EQ(attributes(*parse(file, "qwen")).first, micro_batch * 0.25 * 6 / (tokens * layers * tokens * layers));
  EXPECT_DOUBLE_EQ(attributes(*parse(file, "qwen")).second, micro_batch * 0.5 / (tokens * layers));
  EXPECT_EQ(attributes(*test::family("mixtral", {{"router-z-loss", "0.5"}})->from_preset("mixtral-tiny")).second,
            micro_batch * 0.5 / (tokens * 4));
  try {
    test::family("qwen", {{"router-z-loss", "0.125"}})->from_preset("qwen3-tiny");
    FAIL() << "a dense model has no routers";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--qwen.router-z-loss"), HasSubstr("no experts")));
  }
}

TEST(QwenConfig, GoesByTheListOfArchitecturesAlone) {
  json file = qwen_json("Qwen3ForCausalLM", "qwen3");
  file["_name_or_path"] = "Qwen2ForCausalLM";
  const BuiltModel built(*parse(file, "qwen"));
  EXPECT_EQ(built.shape("model.layers.0.self_attn.q_proj.bias"), "absent");
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
